package sealed

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/probate-dev/probate/records"
)

// Config is what a sealer works with.
type Config struct {
	Keys   Keys         // default: none, so nothing is sealed
	Logger *slog.Logger // default: discards
	// Unsealable is told of every value that could not be opened. It must not
	// block.
	Unsealable func(Reason)
}

// Reason is why a value could not be opened, in a word for metrics.
type Reason string

// Reasons.
const (
	NoKeys     Reason = "no_keys"     // it is sealed, and nothing is configured here
	UnknownKey Reason = "unknown_key" // it is sealed with a key that is not here
	Corrupt    Reason = "corrupt"     // it was altered, cut short or moved from elsewhere
)

// Sealer seals and opens with keys that can be exchanged while it works. It is
// safe for concurrent use.
type Sealer struct {
	config Config
	keys   atomic.Pointer[Keys]
}

// New makes a sealer.
func New(c Config) *Sealer {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Unsealable == nil {
		c.Unsealable = func(Reason) {}
	}
	s := &Sealer{config: c}
	s.Exchange(c.Keys)
	return s
}

// Exchange replaces the keys. What was sealed before is opened if its key is
// still among them.
func (s *Sealer) Exchange(k Keys) { s.keys.Store(&k) }

// Keys are those in use.
func (s *Sealer) Keys() Keys { return *s.keys.Load() }

// Seal makes of a response what is stored of it under a fence. It is for an
// owner's last write that goes past the [Store], in a transaction of the
// owner's. A body that would be too long once it is sealed is not kept, like
// one that is too long for its route.
func (s *Sealer) Seal(id records.ID, f records.Fence, r records.Response) (records.Response, error) {
	return s.sealed(bond{purposeBody, id, f.Epoch}, r, randomNonce), nil
}

func (s *Sealer) sealed(b bond, r records.Response, n nonce) records.Response {
	body := s.Keys().sealed(b, r.Body, n)
	if len(body) > records.MaxBodyBytes && len(r.Body) <= records.MaxBodyBytes {
		return tombstone(r)
	}
	r.Body = body
	return r
}

// tombstone is what can be said of a response without its body, in the form in
// which the gateway says it.
func tombstone(r records.Response) records.Response {
	sum := sha256.Sum256(r.Body)
	t := records.Response{Status: r.Status}
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Location") {
			t.Headers = append(t.Headers, h)
			break
		}
	}
	t.Headers = append(t.Headers,
		records.Header{Name: "Content-Length", Value: strconv.Itoa(len(r.Body))},
		records.Header{Name: "Content-Digest", Value: "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"})
	return t
}

// request makes of a request what is stored of it.
func (s *Sealer) request(id records.ID, request []byte) ([]byte, error) {
	sealed := s.Keys().sealed(bond{purpose: purposeRequest, id: id}, request, randomNonce)
	if len(sealed) > records.MaxRequestBytes {
		return nil, &records.InvalidError{Field: "request", Reason: "over 64 MiB, as it would be stored"}
	}
	return sealed, nil
}

// open makes of a record what was given to be stored. The response may be
// shared with other callers, so it is replaced and not changed. The request
// matters only while there may be work to do again; afterwards a key that has
// gone must not take the answer with it.
func (s *Sealer) open(ctx context.Context, r *records.Record) error {
	if r.Response != nil && enveloped(r.Response.Body) {
		body, err := s.value(ctx, r, bond{purposeBody, r.ID, r.Epoch}, r.Response.Body)
		if err != nil {
			return err
		}
		opened := *r.Response
		opened.Body = body
		r.Response = &opened
	}
	if r.State == records.Finalized || r.State == records.Released {
		s.openRequestIfPossible(r)
		return nil
	}
	request, err := s.value(ctx, r, bond{purpose: purposeRequest, id: r.ID}, r.Request)
	r.Request = request
	return err
}

// openRequestIfPossible leaves out a request that cannot be opened.
func (s *Sealer) openRequestIfPossible(r *records.Record) {
	request, err := s.Keys().open(bond{purpose: purposeRequest, id: r.ID}, r.Request)
	if err != nil {
		request = nil
	}
	r.Request = request
}

// value opens one value of a record, or tells everybody that it cannot.
func (s *Sealer) value(ctx context.Context, r *records.Record, b bond, stored []byte) ([]byte, error) {
	value, err := s.Keys().open(b, stored)
	if err == nil {
		return value, nil
	}
	reason := s.unsealable(err)
	s.config.Logger.ErrorContext(ctx, "sealed value cannot be opened", "record", r.ID, "epoch", r.Epoch, "state", r.State,
		"value", b.purpose.String(), "reason", string(reason), "error", err)
	return nil, fmt.Errorf("open %s of record %s: %w: %w", b.purpose, r.ID, records.ErrSealed, err)
}

// unsealable tells who counts them of a value that cannot be opened, and why.
func (s *Sealer) unsealable(err error) Reason {
	reason := Corrupt
	switch {
	case errors.Is(err, errNoKeys):
		reason = NoKeys
	case errors.Is(err, errUnknownKey):
		reason = UnknownKey
	}
	s.config.Unsealable(reason)
	return reason
}
