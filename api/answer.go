package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// conclude answers the client with what the coordinator said, unless a run has
// answered already by writing straight through.
func (x *exchange) conclude(ctx context.Context, w http.ResponseWriter, answer takeover.Answer, err error) (outcome string) {
	gone := err != nil && ctx.Err() != nil
	if gone {
		x.client.cut()
	}
	if owner, raw := x.client.leave(); owner != nil {
		return x.streamed(owner, raw, answer, err)
	}
	switch {
	case gone:
		return "client_gone"
	case err != nil:
		p := problemOf(err)
		if p.code == codeStoreUnavailable && x.executes() {
			p = problem{code: codeInProgress, record: x.name.ID()} // it was begun, and is left to others
		}
		if p.code == codeUnreadable {
			p.record = x.name.ID()
		}
		if p.code == codeInternal {
			x.e.api.config.Logger.ErrorContext(ctx, "request failed", "route", x.e.route.Operation, "error", err)
		}
		return x.problem(w, p)
	}
	switch id := answer.Record.ID; answer.Outcome {
	case takeover.InProgress:
		return x.problem(w, problem{code: codeInProgress, record: id, retryAfter: wholeSeconds(answer.RetryAfter)})
	case takeover.Reused:
		return x.problem(w, problem{code: codeKeyReused})
	case takeover.OutcomeUnknown:
		return x.problem(w, problem{code: codeOutcomeUnknown, record: id})
	case takeover.Executed, takeover.TookOver:
		return x.deliver(w, answer)
	case takeover.Reconciled:
		if answer.Record.State != records.Finalized {
			return x.deliver(w, answer) // it came to nothing: all there is to say is what the run saw
		}
		return x.replay(w, answer.Record, statusReconciled)
	case takeover.Replayed:
		return x.replay(w, answer.Record, statusReplayed)
	case takeover.Waited:
		return x.replay(w, answer.Record, statusWaited)
	}
	return x.problem(w, problem{code: codeInternal, record: answer.Record.ID})
}

// streamed ends a response that a run has written itself. If it is not the
// record's answer the client must not take it for one.
func (x *exchange) streamed(owner *capture, raw bool, answer takeover.Answer, err error) string {
	if raw { // the run holds the writer, and must not find it closed
		<-owner.over
	}
	u := x.own()
	own := u != nil && u.capture == owner
	switch {
	case own && owner.taken:
		return u.status()
	case own && err == nil && (u.fault == nil || u.fault.answered) &&
		(answer.Outcome == takeover.Executed || answer.Outcome == takeover.TookOver):
		return u.status()
	}
	panic(http.ErrAbortHandler)
}

// deliver answers with what this request's own run came to.
func (x *exchange) deliver(w http.ResponseWriter, answer takeover.Answer) string {
	u := x.own()
	unknown := problem{code: codeOutcomeUnknown, record: answer.Record.ID}
	switch {
	case u == nil && answer.Completion.Kind == takeover.Untouched:
		return x.problem(w, problem{code: codeStoreUnavailable}) // it was not even begun
	case u == nil:
		return x.problem(w, unknown) // it does not return
	}
	if answer.Record.State == records.Finalized {
		u.expires = answer.Record.ExpiresAt
	}
	final := records.Record{ID: answer.Record.ID, ExpiresAt: u.expires, Response: u.result}
	switch f := u.fault; {
	case u.told != nil && u.capture.silent:
		final.Response = u.told
		return x.replay(w, final, u.status())
	case f == nil && u.capture.kept(), f != nil && f.answered && u.capture.kept():
		u.capture.deliver(w)
		return u.status()
	case u.result != nil: // a problem that stands, or what the handler has committed
		return x.replay(w, final, u.status())
	case f == nil, f.abort:
		panic(http.ErrAbortHandler)
	case u.completed == takeover.Untouched, answer.Record.State == records.Released:
		return x.problem(w, u.faultProblem())
	}
	return x.problem(w, unknown)
}

// replay answers with a stored response.
func (x *exchange) replay(w http.ResponseWriter, r records.Record, status string) string {
	if r.Response == nil {
		return x.problem(w, problem{code: codeInternal, record: r.ID})
	}
	if r.Response.Body == nil {
		return x.problem(w, problem{code: codeNotReplayable, record: r.ID, stored: r.Response})
	}
	// What another request brought about is a replay; what this one did is not.
	replayed := x.own() == nil || status == statusReplayed || status == statusWaited
	h := w.Header()
	restore(h, r.Response.Headers)
	x.mark(h, marks{status: status, expires: r.ExpiresAt, replayed: replayed})
	if x.e.traits.answered != nil {
		x.e.traits.answered(h, r.Response.Status, true)
	}
	writeStored(w, r.Response, replayed)
	return status
}

// problem answers with a problem.
func (x *exchange) problem(w http.ResponseWriter, p problem) string {
	if x.key != "" { // what cannot be read is not repeated
		x.mark(w.Header(), marks{})
	}
	if p.refusal != nil {
		p.refusal.passOn(w)
		return "refused"
	}
	writeProblem(w, x.e.route.Profile, x.e.api.config.ProblemTypes, p)
	return string(p.code)
}

// storedProblem is a problem as the response that duplicates get, too.
func (e *endpoint) storedProblem(p problem) records.Response {
	d := p.document(e.api.config.ProblemTypes)
	d.Status = e.traits.status(p.code)
	d.Retryable, d.RetryAfter = false, 0 // it stands
	body, err := json.Marshal(e.traits.body(d))
	if err != nil {
		panic("marshal problem: " + err.Error()) // made of strings and numbers only
	}
	return records.Response{Status: d.Status, Body: body, Headers: []records.Header{
		{Name: "Cache-Control", Value: "no-store"},
		{Name: "Content-Type", Value: e.traits.media},
	}}
}
