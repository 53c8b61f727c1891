package records

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Interventions is what an operator may do to a record. Each is one
// transaction with the event that says who did what, and why.
//
// Releasing and resolving raise the epoch, so that whoever held the record
// before is shut out, and mark the row: the same call again, after a lost
// reply, returns the record and changes nothing.
type Interventions interface {
	// ReleaseByOperator frees a key: a person vouches that nothing was done, or
	// that doing it again is right. It lands only on a record that is unknown,
	// or in progress of a terminal executor, at the epoch that the person saw.
	// It returns the record as it is now. ErrFenced: it has changed or is in
	// no such state; ErrNotFound.
	ReleaseByOperator(ctx context.Context, i Intervention) (Record, error)
	// ResolveByOperator gives an unknown record the outcome that a person has
	// found out; of one that was erased only the status is stored. Errors as
	// ReleaseByOperator.
	ResolveByOperator(ctx context.Context, i Intervention, o Outcome) (Record, error)
	// Erase forgets what a page of a principal's records says: key, resource,
	// stored request, headers and body. What keeps a late duplicate from
	// running again stays until it expires: id, realm, operation, fingerprint,
	// state, epoch, status and times; such a record is a tombstone. Records in
	// progress stay as they are, and are counted. A page that did or counted
	// something leaves an event, and so does the last one, which says that
	// somebody asked; it names the principal by [PrincipalRef]. A page examines
	// a bounded number of records of all realms, so it may do nothing with more
	// to come. Repeated it finds what is left.
	Erase(ctx context.Context, e Erasure) (Erased, error)
}

// Intervention says who changes which record, and why.
type Intervention struct {
	ID     ID
	Epoch  int64  // at which the person saw it
	Actor  string // 1 to 255 bytes of UTF-8 without NUL
	Reason string // not blank, at most MaxReasonBytes of UTF-8 without NUL
}

// Condemnation is an operator's word that an executor is dead. See
// [Executors.FenceByOperator].
type Condemnation struct {
	Executor ExecutorID
	Actor    string // as an Intervention's
	Reason   string
	Force    bool // whatever its lease: the operator is certain
}

// Erasure asks for a page of what a principal's records say to be forgotten.
type Erasure struct {
	Realm     string
	Principal string
	Actor     string // as an Intervention's
	Reason    string

	After ID  // exclusive; the Next of the page before
	Limit int // records that a page examines at most, 1 to 10000
}

// Erased is what a page of an erasure did.
type Erased struct {
	Count   int // records whose content is forgotten
	Running int // records of the principal that were in progress
	Next    ID
	More    bool
}

// Validate reports every reason why the intervention could never land.
func (i Intervention) Validate() error {
	var faults faults
	faults.check(i.ID != ID{}, "record id", "missing")
	faults.add(validateActor(i.Actor))
	faults.add(ValidateGrounds(i.Reason))
	return faults.join()
}

// Validate reports every reason why the fence could never land.
func (c Condemnation) Validate() error {
	var faults faults
	faults.add(validateActor(c.Actor))
	faults.add(ValidateGrounds(c.Reason))
	return faults.join()
}

// Validate reports every reason why the erasure could never be done.
func (e Erasure) Validate() error {
	var faults faults
	faults.check(len(e.Realm) <= MaxFieldBytes, "realm", "over 64 KiB")
	faults.check(len(e.Principal) <= MaxFieldBytes, "principal", "over 64 KiB")
	faults.check(e.Limit >= 1 && e.Limit <= 10_000, "limit", "want 1 to 10000")
	faults.add(validateActor(e.Actor))
	faults.add(ValidateGrounds(e.Reason))
	return faults.join()
}

func validateActor(s string) error {
	if s == "" || len(s) > 255 || !cleanText(s) {
		return &InvalidError{Field: "actor", Reason: "want 1 to 255 bytes of UTF-8 without NUL"}
	}
	return nil
}

// ValidateGrounds accepts what an operator may give as the reason of a change:
// who finds it in the audit must not find it blank.
func ValidateGrounds(reason string) error {
	if strings.TrimSpace(reason) == "" {
		return &InvalidError{Field: "reason", Reason: "missing; say why"}
	}
	return ValidateReason(reason)
}

const (
	interventionDomain = "probate/intervention/v1"
	principalDomain    = "probate/principal/v1"
)

// Mark is the token of the row that the intervention leaves. It is the same
// for a repeat, and another for another operator, reason or outcome. A nil
// outcome is that of a release.
func (i Intervention) Mark(o *Outcome) Token {
	parts := []string{string(i.ID[:]), strconv.FormatInt(i.Epoch, 10), i.Actor, i.Reason}
	if o != nil {
		parts = append(parts, strconv.Itoa(o.Response.Status), o.Retention.String(),
			string(AppendHeaders(nil, o.Response.Headers)), strconv.FormatBool(o.Response.Body == nil), string(o.Response.Body))
	}
	sum := hashParts(interventionDomain, parts...)
	return Token(sum[:len(Token{})])
}

// RowReason is the reason that the executor's row keeps, which has no place for
// the operator's name.
func (c Condemnation) RowReason() string {
	word := ""
	if c.Force {
		word = ", by force"
	}
	return "operator " + c.Actor + word + ": " + c.Reason
}

// PrincipalRef names a principal of a realm in an audit without saying who it
// is.
func PrincipalRef(realm, principal string) string {
	sum := hashParts(principalDomain, realm, principal)
	return hex.EncodeToString(sum[:8])
}

// Of reports whether a record that has not been erased is the principal's: its
// id is a hash of realm, principal and key, so no row need say whose it is.
func (e Erasure) Of(id ID, key string) bool {
	return Key{Realm: e.Realm, Principal: e.Principal, Key: key}.ID() == id
}

// Note is the reason of the event that a page leaves.
func (e Erasure) Note(done Erased) string {
	realm := e.Realm[:min(len(e.Realm), 64)]
	return CutReason(fmt.Sprintf("principal %s of realm %q: %d erased, %d in progress: %s",
		PrincipalRef(e.Realm, e.Principal), realm, done.Count, done.Running, e.Reason))
}

// Notable reports whether a page leaves an event.
func (e Erasure) Notable(done Erased) bool {
	return done.Count > 0 || done.Running > 0 || !done.More
}
