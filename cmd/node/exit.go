package main

import (
	"errors"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Exit codes, as the help lists them.
const (
	exitDone    = 0
	exitFailed  = 1
	exitUsage   = 2 // the command line or the configuration is at fault
	exitStore   = 3 // the store cannot be reached, or is not for this node
	exitRefused = 4 // there is no such thing, or what was asked may not be done
)

const exitCodes = `Exit codes: 0 done; 1 failed; 2 the command line or the configuration is at fault; ` +
	`3 the store cannot be reached or is not for this node; 4 not found, or refused.`

// usageError is a fault of the command line that kong does not know.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// configError is every fault of a configuration.
type configError struct{ error }

func (e configError) Unwrap() error { return e.error }

// refusedError is something that may not be done.
type refusedError struct{ error }

func (e refusedError) Unwrap() error { return e.error }

// exitCode is what an error means to who started the program.
func exitCode(err error) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return exitDone
	case has[usageError](err), has[configError](err), has[*kong.ParseError](err), is(records.ErrInvalid):
		return exitUsage
	case is(records.ErrUnavailable, records.ErrWrongCluster, records.ErrSchemaTooOld, records.ErrBinaryTooOld, records.ErrForeignHost, records.ErrCorrupt, records.ErrSealed):
		return exitStore
	case has[refusedError](err), is(records.ErrNotFound, records.ErrFenced, records.ErrLeaseHeld, records.ErrNotActive, takeover.ErrSlotInUse):
		return exitRefused
	}
	return exitFailed
}

func has[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// advice says what to do about an error, one sentence or two; "": nothing is
// known that the error does not say.
func advice(err error) string {
	for _, a := range []struct {
		about error
		text  string
	}{
		{
			records.ErrForeignHost,
			"A SQLite file is for the processes of one host, and live nodes of another host, or of this one before it was restarted, are in it. " +
				"After a restart of the host their leases run out by themselves: wait for takeover.lease_ttl. For several hosts use PostgreSQL.",
		},
		{
			takeover.ErrSlotInUse,
			"A live process has registered under this slot and answers. Stop it first, or give this one a slot of its own (slot: or --slot). " +
				"If it is certain that it is dead: probate executors fence ID --force --reason WHY.",
		},
		{
			takeover.ErrURLTaken,
			"Another node answers at internal.advertise. Give this one an address of its own; a balancer's address will not do.",
		},
		{takeover.ErrReplaced, "A newer process runs in this slot. If that was not meant, two processes share a slot: give each its own."},
		{
			records.ErrWrongCluster,
			"Check store and cluster. If the store is a restored copy that must get a name of its own: probate fleet rekey.",
		},
		{records.ErrSchemaTooOld, "Run: probate migrate up, or start with serve --migrate."},
		{records.ErrBinaryTooOld, "Newer nodes have migrated the store. Install a newer probate here."},
		{records.ErrUnavailable, "The store did not answer. Check store (or DATABASE_URL) and that the server runs; probate doctor says more."},
		{
			records.ErrFenced,
			"It is in no state for that, or has changed since it was seen: what is unknown can be released and resolved, " +
				"what is in progress of a dead executor released; a flow can be ended that has not ended. See probate records show, or flows show.",
		},
		{
			records.ErrSealed,
			"It was sealed with a key that this command has not, or it was altered. Give it the nodes' keys: seal.keys_file or PROBATE_SEAL_KEYS.",
		},
		{records.ErrLeaseHeld, "Its lease is still running. Wait for it to run out, or use --force if the process is certainly dead."},
	} {
		if errors.Is(err, a.about) {
			return a.text
		}
	}
	return ""
}

// complain writes an error, and what to do about it, for a person.
func (e *env) complain(err error) {
	text := strings.TrimSpace(err.Error())
	e.say("%s %s\n", e.paint(red, "probate:"), text)
	if a := advice(err); a != "" {
		e.say("%s\n", a)
	}
}
