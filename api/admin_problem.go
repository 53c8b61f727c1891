package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// adminCode names a kind of refusal of the operator API.
type adminCode string

const (
	adminUnauthorized     adminCode = "unauthorized"
	adminForbidden        adminCode = "forbidden"
	adminInvalid          adminCode = "request_invalid"
	adminTooLarge         adminCode = "request_too_large"
	adminNotFound         adminCode = "not_found"
	adminNoMethod         adminCode = "method_not_allowed"
	adminConflict         adminCode = "state_conflict"
	adminLeaseHeld        adminCode = "lease_held"
	adminNotReconcilable  adminCode = "not_reconcilable"
	adminStoreUnavailable adminCode = "store_unavailable"
	adminNotServing       adminCode = "not_serving"
	adminInternal         adminCode = "internal_error"
)

// refusal is what all answers of one code have in common.
type refusal struct {
	status int
	title  string
	detail string // where the occurrence says nothing
}

// refusals are all there are.
var refusals = map[adminCode]refusal{
	adminUnauthorized:     {status: 401, title: "Not let in", detail: "A bearer token of an operator is needed here."},
	adminForbidden:        {status: 403, title: "Not allowed", detail: "This changes something, which takes the role operate."},
	adminInvalid:          {status: 400, title: "Request invalid"},
	adminTooLarge:         {status: 413, title: "Request too large"},
	adminNotFound:         {status: 404, title: "Not found", detail: "Nothing has this path."},
	adminNoMethod:         {status: 405, title: "Method not allowed", detail: "This path is not for that method."},
	adminConflict:         {status: 409, title: "Not as it was seen", detail: "It is in no state for this, or has changed since it was seen. Look again."},
	adminLeaseHeld:        {status: 409, title: "Its lease is running", detail: "Wait for the lease to run out, or force it if the process is certainly dead."},
	adminNotReconcilable:  {status: 409, title: "Nobody can be asked", detail: "Resolve or release it by hand."},
	adminStoreUnavailable: {status: 503, title: "Store not available", detail: "The change may have been made all the same. Look again."},
	adminNotServing:       {status: 503, title: "Node is not serving", detail: "Nothing was done. Ask another node."},
	adminInternal:         {status: 500, title: "Internal error", detail: "The node's log says more."},
}

// adminError is a refusal with what its occurrence says.
type adminError struct {
	code   adminCode
	detail string
}

func (e *adminError) Error() string { return string(e.code) + ": " + e.detail }

func refuse(code adminCode, format string, args ...any) error {
	return &adminError{code: code, detail: fmt.Sprintf(format, args...)}
}

// refusalOf is the refusal that an error stands for.
func refusalOf(err error) *adminError {
	if e, ok := errors.AsType[*adminError](err); ok {
		return e
	}
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(records.ErrNotFound):
		return &adminError{code: adminNotFound, detail: "There is no such record, executor or flow, or it was purged."}
	case is(records.ErrFenced):
		return &adminError{code: adminConflict}
	case is(records.ErrLeaseHeld):
		return &adminError{code: adminLeaseHeld}
	case is(takeover.ErrNoRoute), is(takeover.ErrNoReconciler), is(records.ErrSealed):
		return &adminError{code: adminNotReconcilable, detail: sentence(err)}
	case is(takeover.ErrNotServing), is(records.ErrNotActive):
		return &adminError{code: adminNotServing}
	case is(records.ErrInvalid):
		return &adminError{code: adminInvalid, detail: sentence(err)}
	case is(records.ErrUnavailable), is(context.DeadlineExceeded):
		return &adminError{code: adminStoreUnavailable}
	}
	return &adminError{code: adminInternal}
}

// sentence is an error as the detail of a problem.
func sentence(err error) string { return "It was refused: " + err.Error() + "." }

// refused answers with a problem document (RFC 9457).
func (a *Admin) refused(w http.ResponseWriter, r *http.Request, err error) {
	e := refusalOf(err)
	k := refusals[e.code]
	if e.code == adminInternal {
		a.config.Logger.ErrorContext(r.Context(), "operator's request failed", "path", r.URL.Path, "error", err)
	}
	setDefault(&e.detail, k.detail)
	h := w.Header()
	switch e.code { //nolint:exhaustive // most have no header of their own
	case adminUnauthorized:
		h.Set("WWW-Authenticate", "Bearer")
	case adminStoreUnavailable, adminNotServing:
		h.Set("Retry-After", "1")
	}
	writeJSON(w, k.status, "application/problem+json", struct {
		Type   string    `json:"type"`
		Title  string    `json:"title"`
		Status int       `json:"status"`
		Detail string    `json:"detail"`
		Code   adminCode `json:"code"`
	}{a.config.ProblemTypes + string(e.code), k.title, k.status, e.detail, e.code})
}

func writeJSON(w http.ResponseWriter, status int, media string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal answer: %v", err)) // made of strings, numbers and times only
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // an operator who is gone is told nothing
}
