package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

// facts are what is known about a record.
type facts struct {
	held    records.Held
	sealed  bool   // something of it cannot be unsealed here
	verdict string // of its owner, just asked; "": not asked
	events  []records.Event
	waiters int // where this is
	limit   int // of take-overs; 0: not known
}

// explain says in words why a record is where it is and what, if anything, will
// happen or is to be done.
func (f facts) explain() string {
	said := []string{f.standing()}
	if f.sealed {
		const unreadable = "What is stored of it cannot be unsealed here: the key is missing, or it was altered. Until the key is back duplicates are answered result_unreadable, and nothing is executed again."
		if said = append(said, unreadable); f.held.Record.State == records.Finalized {
			said = said[1:]
		}
	}
	if f.held.Record.State == records.InProgress {
		said = append(said, f.heartbeat(), f.attempts(), f.waiting())
	}
	if f.held.Record.State != records.Finalized {
		said = append(said, f.noted())
	}
	return join(said)
}

func join(sentences []string) string {
	var all []string
	for _, s := range sentences {
		if s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, " ")
}

func (f facts) standing() string {
	r := f.held.Record
	switch r.State {
	case records.Finalized:
		if r.Response != nil && r.Response.Body == nil {
			return "It was executed, and its response was not kept or has been erased: duplicates are told so until it expires, and nothing is executed again. Nothing is to be done."
		}
		return "It was executed, and its answer is replayed until it expires. Nothing is to be done."
	case records.Released:
		return "The attempt was given up before anything was done, or failed in a way that says nothing about the operation, or an operator freed it. The key is free: a client may send it again."
	case records.Unknown:
		return fmt.Sprintf("It was executed, perhaps, and nobody can tell what came of it. Look at the service for the operation and resource above. "+
			"Duplicates are answered outcome_unknown, with this record's id as operation_ref, until it expires at %s; after that the key is free, and a request with it is executed. "+
			"If its route has a reconcile, the next duplicate asks it, and so does records reconcile. "+
			"Who has found out what happened says so with records resolve, or frees the key with records release.", r.ExpiresAt.UTC().Format(time.RFC3339))
	case records.InProgress:
		return f.owner()
	}
	return "It is in a state that this program does not know."
}

// owner says what the owner's state or answer means for the record.
func (f facts) owner() string {
	if x := f.held.Executor; x.State.Terminal() {
		return fmt.Sprintf("Its owner is %s. The next duplicate takes it over at once; without one, a node whose configuration has its operation does so when it next looks, and records reconcile does so now.", x.State)
	}
	switch f.verdict {
	case "running":
		return "Its owner has signed that it is running it. Duplicates wait. It ends by the route's work_timeout at the latest."
	case "not_running":
		return "Its owner has signed that it is not running it: a reply of the store was lost. The next duplicate takes it over at once, and so does the owner itself when it next looks for its orphans."
	case "replaced":
		return "A newer process in its owner's slot answers. The next duplicate takes it over."
	case "down":
		return "Nothing listens where its owner should be. A node that is asked for it confirms that, for some hundred milliseconds if the owner was attested, fences the owner and takes over. Send the request again, or see executors list."
	case "silent":
		return "Its owner does not answer. A node that is asked for it confirms that for takeover.probe_budget, and takes over if no heartbeat lands meanwhile."
	case "stranger":
		return "Another executor answers at its owner's URL: the address was used again, or a balancer stands in front. Each node needs an advertise of its own."
	case "":
		return "Its owner was not asked whether it runs it."
	}
	return "What answers at its owner's URL is not its owner, or cannot be understood from here: see the reason. It may be this host that cannot reach the node; " +
		"internal.token, internal.tls and internal.allow must be those of the fleet. The nodes decide by their own probes."
}

func (f facts) heartbeat() string {
	x := f.held.Executor
	switch {
	case x.ID == records.ExecutorID{}, x.State.Terminal():
		return ""
	case x.Stale():
		return fmt.Sprintf("The owner's last heartbeat came %s ago, longer than its lease of %s: the next node that is asked for the record fences the owner and takes over.", roughly(x.HeartbeatAge), x.LeaseTTL)
	case x.Policy == records.PolicyLease:
		return fmt.Sprintf("The owner's last heartbeat came %s ago; its policy is lease, so nobody takes over before that is older than %s.", roughly(x.HeartbeatAge), x.LeaseTTL)
	}
	return fmt.Sprintf("The owner's last heartbeat came %s ago; its lease is %s.", roughly(x.HeartbeatAge), x.LeaseTTL)
}

func (f facts) attempts() string {
	switch n := f.held.Record.Takeovers; {
	case n == 0:
		return ""
	case f.limit == 0:
		return fmt.Sprintf("It was taken over %s.", times(n))
	case n > f.limit:
		return fmt.Sprintf("It was taken over %s, more often than the %d that are allowed, so it is not executed again: its next owner ends it unknown.", times(n), f.limit)
	default:
		return fmt.Sprintf("It was taken over %s of at most %d; after that it ends unknown instead of being executed again.", times(n), f.limit)
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func (f facts) waiting() string {
	switch f.waiters {
	case 0:
		return ""
	case 1:
		return "One duplicate waits for it on this node."
	}
	return fmt.Sprintf("%d duplicates wait for it on this node.", f.waiters)
}

// noted says what the audit has to tell, in two sentences at most: what was
// last seen of an owner, and what was last done.
func (f facts) noted() string {
	var seen, done string
	for _, e := range f.events {
		when := fmt.Sprintf("%s ago", roughly(time.Since(e.At)))
		why := strings.TrimSuffix(": "+e.Reason, ": ")
		switch {
		case e.Actor != "":
			done = fmt.Sprintf("The last that was done, %s: %s by %s%s.", when, said(e.Kind), e.Actor, why)
		case e.Kind == records.EventProbed:
			seen = fmt.Sprintf("The last verdict about an owner, %s%s.", when, why)
		default:
			done = fmt.Sprintf("The last that was noted, %s: %s%s.", when, said(e.Kind), why)
		}
	}
	return join([]string{seen, done})
}

func said(k records.EventKind) string { return strings.ReplaceAll(string(k), "_", " ") }

// explainExecutor says in words where an executor stands.
func explainExecutor(x records.Executor, holds int) string {
	var state string
	switch x.State {
	case records.Active:
		state = "It serves, and claims what it is asked for."
		if x.Stale() {
			state = fmt.Sprintf("It has not sent a heartbeat for %s, longer than its lease of %s: the next node that needs one of its records fences it.", roughly(x.HeartbeatAge), x.LeaseTTL)
		}
	case records.Draining:
		state = "It leaves: it finishes what it has, and claims nothing."
	case records.Gone:
		state = "It has left by itself, and never comes back under this id."
	case records.Fenced:
		state = fmt.Sprintf("It was declared dead: %s. If it lives it has stopped its work, and is registered under another id.", strings.TrimSuffix(x.FencedReason, "."))
	}
	attested := ""
	if !x.State.Terminal() && x.AttestedAt.IsZero() {
		attested = "No peer has proven that it is reached at its URL, so a refused connection there is confirmed for longer."
	}
	left := ""
	switch {
	case holds == 0:
	case x.State.Terminal():
		left = "What it had in progress is taken over by the next duplicate, or by a node that has its operation when it next looks."
	default:
		left = "What it has in progress is below."
	}
	return join([]string{state, attested, left})
}

// roughly is a duration as a person says it.
func roughly(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(time.Second / 10)
	}
	return d.Round(time.Second)
}
