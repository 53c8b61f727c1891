package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"time"

	"github.com/gowebpki/jcs"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// Question is what a reconcile URL is asked, as JSON.
type Question struct {
	OperationRef string `json:"operation_ref"` // the record's id
	Operation    string `json:"operation"`
	Resource     string `json:"resource"`
	Realm        string `json:"realm"`
	Key          string `json:"key"`
	Fingerprint  string `json:"fingerprint"` // 64 hexadecimal digits
	Epoch        int64  `json:"epoch"`       // the asker's; smaller ones are to be refused from now on
	// PreviousExecutor is whose execution was interrupted.
	PreviousExecutor string `json:"previous_executor"`
}

// Statement is the answer, as JSON with status 200.
type Statement struct {
	Finding  string            `json:"finding"` // applied, not_applied, pending, undecidable
	Response *ResponseDocument `json:"response,omitempty"`
}

// ResponseDocument is the response of an operation that took effect.
type ResponseDocument struct {
	Status     int                 `json:"status"`
	Headers    map[string][]string `json:"headers,omitempty"`
	Body       *string             `json:"body,omitempty"` // one of the two, or neither for an empty body
	BodyBase64 *string             `json:"body_base64,omitempty"`
}

// inquiry reconciles by asking the service.
type inquiry struct {
	config  Reconcile
	limit   int64
	outside *outside
}

// Reconcile implements [takeover.Reconciler]. What is not exactly a statement
// is an error and no finding.
func (q *inquiry) Reconcile(ctx context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
	body, err := json.Marshal(questionOf(ctx, r))
	if err != nil {
		return takeover.Finding{}, fmt.Errorf("ask %s: %w", q.config.URL, err)
	}
	ctx, cancel := context.WithTimeout(ctx, q.config.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, q.config.URL, bytes.NewReader(body))
	if err != nil {
		return takeover.Finding{}, fmt.Errorf("ask %s: %w", q.config.URL, err)
	}
	setHeaders(req, q.config.Headers)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	got, err := q.outside.do(req, 64<<10+2*q.limit)
	if err != nil {
		return takeover.Finding{}, fmt.Errorf("ask %s: %w", q.config.URL, err)
	}
	found, err := readStatement(got, q.limit)
	if err != nil {
		return takeover.Finding{}, fmt.Errorf("ask %s: %w", q.config.URL, err)
	}
	return found, nil
}

func questionOf(ctx context.Context, r records.Record) Question {
	return Question{
		OperationRef: r.ID.String(), Operation: r.Operation, Resource: r.Resource, Realm: r.Realm, Key: r.Key,
		Fingerprint: hex.EncodeToString(r.Fingerprint[:]), Epoch: r.Epoch, PreviousExecutor: takeover.Interrupted(ctx, r).String(),
	}
}

func setHeaders(req *http.Request, headers map[string]string) {
	for name, value := range headers {
		req.Header.Set(name, value)
	}
}

// readStatement reads an answer strictly: a service that speaks another
// language by mistake must not decide about a payment.
func readStatement(got reply, limit int64) (takeover.Finding, error) {
	var none takeover.Finding
	if got.status != http.StatusOK {
		return none, fmt.Errorf("status %d, want 200", got.status)
	}
	if media, _, _ := mime.ParseMediaType(got.header.Get("Content-Type")); !isJSON(media) {
		return none, fmt.Errorf("content type %q, want application/json", got.header.Get("Content-Type"))
	}
	if err := saidOnce(got.body); err != nil {
		return none, fmt.Errorf("parse statement: %w", err)
	}
	var s Statement
	d := json.NewDecoder(bytes.NewReader(got.body))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return none, fmt.Errorf("parse statement: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return none, errors.New("parse statement: something follows it")
	}
	if s.Response != nil && s.Finding != takeover.Applied.String() {
		return none, fmt.Errorf("finding %q with a response", s.Finding)
	}
	kind, err := takeover.ParseFinding(s.Finding)
	if err != nil {
		return none, err
	}
	switch kind {
	case takeover.Applied:
		if s.Response == nil {
			return none, errors.New("applied without a response")
		}
		r, err := s.Response.response(limit)
		if err != nil {
			return none, fmt.Errorf("response: %w", err)
		}
		return takeover.FoundApplied(r), nil
	case takeover.Pending:
		return takeover.FoundPending(retryAfter(got.header)), nil
	case takeover.NotApplied, takeover.Undecidable:
	}
	return takeover.Finding{Kind: kind}, nil
}

// saidOnce refuses a statement that says a member twice, in whatever letters: of
// two findings nobody knows which one is meant, and the parser would take the
// last. What else it is it leaves to the parser.
func saidOnce(body []byte) error {
	if !jsonNests(body, maxJSONDepth) {
		return errors.New("it nests too deep")
	}
	if _, err := jcs.Transform(body); err != nil { // refuses repeated members, at any depth
		return err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return err
	}
	if err := knows(members, "finding", "response"); err != nil {
		return err
	}
	response, within := members["response"], map[string]json.RawMessage(nil)
	if response == nil || json.Unmarshal(response, &within) != nil {
		return nil
	}
	return knows(within, "status", "headers", "body", "body_base64")
}

// knows refuses members of other names; the parser takes any letter case.
func knows(members map[string]json.RawMessage, names ...string) error {
	for name := range members {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown member %q", name)
		}
	}
	return nil
}

func (d ResponseDocument) response(limit int64) (records.Response, error) {
	r := records.Response{Status: d.Status, Body: []byte{}}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		for _, v := range d.Headers[name] {
			r.Headers = append(r.Headers, records.Header{Name: name, Value: v})
		}
	}
	switch {
	case d.Body != nil && d.BodyBase64 != nil:
		return r, errors.New("both body and body_base64")
	case d.Body != nil:
		r.Body = []byte(*d.Body)
	case d.BodyBase64 != nil:
		var err error
		if r.Body, err = base64.StdEncoding.DecodeString(*d.BodyBase64); err != nil {
			return r, fmt.Errorf("body_base64: %w", err)
		}
	}
	if err := checkFound(r, limit); err != nil {
		return r, err
	}
	r.Headers = storable(unframed(r), nil)
	return r, nil
}

// retryAfter is how long a service wants to be left alone, in whole seconds.
func retryAfter(h http.Header) time.Duration {
	seconds, _ := deltaSeconds(h.Get("Retry-After"))
	return time.Duration(min(seconds, 3600)) * time.Second
}
