package sealed

import (
	"bytes"
	"context"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// Store is a store whose bodies and stored requests are sealed. Methods that
// carry neither are the store's own.
type Store struct {
	records.Store
	sealer *Sealer
}

var _ records.Store = (*Store)(nil)

// Over is the store with what it keeps sealed.
func (s *Sealer) Over(store records.Store) *Store { return &Store{store, s} }

// Reserve seals the request, and opens what stands under the key. Of an own
// claim that cannot be opened the request is the caller's, who repeats itself:
// a claim is never lost to a key.
func (s *Store) Reserve(ctx context.Context, r records.Reservation) (records.Reserved, error) {
	sealed := r
	var err error
	if sealed.Request, err = s.sealer.request(r.ID, r.Request); err != nil {
		return records.Reserved{}, fmt.Errorf("reserve: %w", err)
	}
	got, err := s.Store.Reserve(ctx, sealed)
	switch {
	case err != nil:
		return got, err
	case got.Owned && bytes.Equal(got.Record.Request, sealed.Request):
		got.Record.Request = r.Request
		return got, nil
	case got.Owned:
		stored := got.Record.Request
		if s.sealer.openRequestIfPossible(&got.Record); stored != nil && got.Record.Request == nil {
			got.Record.Request = r.Request
		}
		return got, nil
	}
	if err := s.sealer.open(ctx, &got.Record); err != nil {
		return records.Reserved{}, err
	}
	return got, nil
}

// Load opens what it reads. What cannot be opened it leaves out of the record,
// which is in the error then, for operators: a records.SealedError.
func (s *Store) Load(ctx context.Context, id records.ID) (records.Held, error) {
	h, err := s.Store.Load(ctx, id)
	if err != nil {
		return h, err
	}
	if err := s.sealer.open(ctx, &h.Record); err != nil {
		return records.Held{}, &records.SealedError{Held: without(h), Cause: err}
	}
	return h, nil
}

// without is a record without what may be sealed.
func without(h records.Held) records.Held {
	h.Record.Request = nil
	if h.Record.Response != nil {
		rest := *h.Record.Response
		rest.Body = nil
		h.Record.Response = &rest
	}
	return h
}

// TakeOver opens the request that it takes over. If that fails the record has
// changed hands all the same. Callers load a record before they take it over,
// and stop there; only a key that goes in between leads here.
func (s *Store) TakeOver(ctx context.Context, t records.TakeOver) (records.Record, error) {
	r, err := s.Store.TakeOver(ctx, t)
	return s.claimed(ctx, r, err)
}

// ClaimUnknown is as TakeOver.
func (s *Store) ClaimUnknown(ctx context.Context, c records.UnknownClaim) (records.Record, error) {
	r, err := s.Store.ClaimUnknown(ctx, c)
	return s.claimed(ctx, r, err)
}

func (s *Store) claimed(ctx context.Context, r records.Record, err error) (records.Record, error) {
	if err != nil {
		return r, err
	}
	if err := s.sealer.open(ctx, &r); err != nil {
		return records.Record{}, err
	}
	return r, nil
}

// Finalize seals the body.
func (s *Store) Finalize(ctx context.Context, id records.ID, f records.Fence, o records.Outcome) error {
	o.Response = s.sealer.sealed(bond{purposeBody, id, f.Epoch}, o.Response, randomNonce)
	return s.Store.Finalize(ctx, id, f, o)
}

// InProgress lists records also when their requests cannot be opened: without
// those.
func (s *Store) InProgress(ctx context.Context, id records.ExecutorID, after records.ID, limit int) ([]records.Record, error) {
	all, err := s.Store.InProgress(ctx, id, after, limit)
	return s.listed(all), err
}

// Orphans is as InProgress.
func (s *Store) Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error) {
	all, err := s.Store.Orphans(ctx, after, limit)
	return s.listed(all), err
}

func (s *Store) listed(all []records.Record) []records.Record {
	for i := range all {
		s.sealer.openRequestIfPossible(&all[i])
	}
	return all
}
