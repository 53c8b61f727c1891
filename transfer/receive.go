package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer/move"
)

// receiveData takes in what a provider pushes, for a flow that was prepared
// here. It is shown when it is whole.
func (p *Plane) receiveData(w http.ResponseWriter, r *http.Request) {
	// Who hangs up is noticed in reading. The request's own end would come with
	// any error of that, and hide it.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	a, err := p.receive(w, r) //nolint:contextcheck // as in serveData
	if err != nil {
		p.fail(w, r, err)
		return
	}
	a.write(w)
}

func (p *Plane) receive(w http.ResponseWriter, r *http.Request) (*answer, error) {
	r, v, err := p.admitStream(r)
	if err != nil {
		return nil, err
	}
	defer v.done()
	ctx, f, t := r.Context(), v.flow, v.task
	if f.State != records.FlowPrepared && f.State != records.FlowStarted || t.Prepare == nil || t.message().direction() != Push {
		return nil, refused(http.StatusConflict, "wrong_state", "nothing is taken in for this data flow now")
	}
	sink, err := p.config.Ends.Inbox(t)
	if err != nil {
		return nil, err
	}
	declared, err := declaredBytes(t)
	if err != nil {
		return nil, err
	}
	token := bearer(r)
	result, err := move.Copy(ctx, move.Job{
		// Of two that push at once the later wins, as with any PUT.
		Identity: move.Identity{Flow: f.ID, Epoch: time.Now().UnixMicro()},
		Source:   &once{body: r.Body, length: r.ContentLength, control: http.NewResponseController(w)}, Sink: sink,
		Length: declared.length, SHA256: declared.sha256,
		MaxBytes: p.config.MaxBytes, StallTimeout: p.config.StallTimeout, Retry: move.Retry{Attempts: 1},
		BeforeCommit: func(ctx context.Context) error {
			held, err := p.store.LoadFlow(ctx, f.ID)
			if err == nil && !opens(held.Flow, token) {
				err = errRevoked
			}
			return err
		},
	})
	switch {
	case errors.Is(err, errRevoked), errors.Is(err, move.ErrSuperseded):
		return nil, refused(http.StatusConflict, "revoked", "the data flow was stopped, or its data was sent again, before all of it was here")
	case err != nil && errors.Is(context.Cause(ctx), errLeaving):
		return nil, busy(http.StatusServiceUnavailable, "not_serving", "this node is leaving; send it all again, to another", time.Second)
	case err != nil && ctx.Err() != nil:
		return nil, refused(http.StatusConflict, "revoked", "the data flow was stopped before all of it was here")
	case errors.Is(err, move.ErrStalled):
		return nil, refused(http.StatusRequestTimeout, "stalled", "no byte came for too long")
	case errors.Is(err, move.ErrLength), errors.Is(err, move.ErrDigest):
		return nil, refused(http.StatusUnprocessableEntity, "not_as_declared", err.Error())
	case errors.Is(err, move.ErrTooLarge):
		return nil, refused(http.StatusRequestEntityTooLarge, "too_large", err.Error())
	case errors.Is(err, move.ErrSinkFull):
		return nil, refused(http.StatusInsufficientStorage, "sink_full", err.Error())
	case err != nil:
		return nil, refused(http.StatusBadGateway, "sink_failed", err.Error())
	}
	p.config.Events.Moved(result.Bytes)
	p.noteReceived(ctx, f.ID, result)
	return &answer{status: http.StatusOK, other: map[string]any{
		"dataFlowId": f.ID, "bytes": result.Bytes, "sha256": fmt.Sprintf("%x", result.SHA256),
	}}, nil
}

// noteReceived lets the status say what has come in. It is a courtesy: should
// the flow change at the same moment, that goes first.
func (p *Plane) noteReceived(ctx context.Context, id string, result move.Result) {
	for range 5 {
		held, err := p.store.LoadFlow(ctx, id)
		if err == nil {
			_, err = p.store.MoveFlow(ctx, records.FlowMove{
				ID: id, Attempt: records.NewToken(), Version: held.Flow.Version, To: held.Flow.State,
				Progress: &records.Progress{Bytes: result.Bytes, Total: result.Bytes, SHA256: result.SHA256[:]},
			})
		}
		if !errors.Is(err, records.ErrFenced) {
			p.complain(ctx, "note what was received", err)
			return
		}
	}
}

// once is a source that can be read one time: the body of a request.
type once struct {
	body    io.ReadCloser
	length  int64
	control *http.ResponseController
	opened  bool
}

// Open implements [move.Source]. A read of a body knows no context: it is the
// connection that must be told that nobody waits any more.
func (o *once) Open(ctx context.Context, _ int64, _ string) (*move.Body, error) {
	if o.opened {
		return nil, &move.Fault{End: move.AtSource, Kind: move.ErrUnavailable, Err: errors.New("a request's body can be read only once")}
	}
	o.opened = true
	stop := context.AfterFunc(ctx, func() { _ = o.control.SetReadDeadline(time.Now()) })
	return &move.Body{ReadCloser: &arriving{o.body, stop}, Length: o.length}, nil
}

// arriving is a body that is being read. Once it has ended, its connection is
// left alone: the answer is still to come.
type arriving struct {
	io.ReadCloser
	stop func() bool
}

// Read implements [io.Reader].
func (a *arriving) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err != nil {
		a.stop()
	}
	return n, err
}

// Close implements [io.Closer].
func (a *arriving) Close() error {
	a.stop()
	return a.ReadCloser.Close()
}
