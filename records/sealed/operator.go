package sealed

import (
	"context"
	"fmt"

	"github.com/probate-dev/probate/records"
)

// ReleaseByOperator returns the record also when its request cannot be opened:
// without it. That may be why it is released.
func (s *Store) ReleaseByOperator(ctx context.Context, i records.Intervention) (records.Record, error) {
	r, err := s.Store.ReleaseByOperator(ctx, i)
	s.sealer.openRequestIfPossible(&r)
	return r, err
}

// ResolveByOperator seals the body for the epoch that the record will have,
// which is one more than the operator saw. A repeated call is recognised by all
// that it would write, so the same body is sealed to the same bytes.
func (s *Store) ResolveByOperator(ctx context.Context, i records.Intervention, o records.Outcome) (records.Record, error) {
	o.Response = s.sealer.sealed(bond{purposeBody, i.ID, i.Epoch + 1}, o.Response, derivedNonce)
	r, err := s.Store.ResolveByOperator(ctx, i, o)
	if err != nil {
		return r, err
	}
	if err := s.sealer.open(ctx, &r); err != nil {
		return records.Record{}, fmt.Errorf("resolved, but: %w", err)
	}
	return r, nil
}
