package transfer

import (
	"net/http"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer/move"
)

// startUntracked does what a start asks for here and now. Nothing is remembered
// of it, so nobody takes it over, and who hangs up ends it.
func (p *Plane) startUntracked(r *http.Request, t Task) (*answer, error) {
	leave, err := p.admit()
	if err != nil {
		return nil, err
	}
	if t.message().direction() == Pull {
		return &answer{stream: &t, done: leave}, nil
	}
	defer leave()
	source, err := p.config.Ends.Source(t)
	if err != nil {
		return nil, err
	}
	sink, err := p.config.Ends.Sink(t)
	if err != nil {
		return nil, err
	}
	declared, err := declaredBytes(t)
	if err != nil {
		return nil, err
	}
	ctx := r.Context()
	select {
	case p.places <- struct{}{}:
		defer func() { <-p.places }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m := t.message()
	_, err = move.Copy(ctx, move.Job{
		Identity: move.Identity{Flow: "untracked/" + m.ProcessID + "/" + m.MessageID, Epoch: time.Now().UnixMicro()},
		Source:   source, Sink: sink, Length: declared.length, SHA256: declared.sha256,
		MaxBytes: p.config.MaxBytes, StallTimeout: p.config.StallTimeout,
	})
	if err != nil {
		return nil, refused(http.StatusBadGateway, "transfer_failed", err.Error())
	}
	return &answer{status: http.StatusOK, flow: records.Flow{
		ID: m.ProcessID, State: records.FlowCompleted,
	}}, nil
}
