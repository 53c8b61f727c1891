package transfer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer/move"
)

// A stream is one consumer that reads a flow's data here, or one provider that
// writes it. It ends when its flow does: at once on the node that is told so,
// and elsewhere when that node was told, or has looked.
type stream struct {
	cut context.CancelCauseFunc
}

// lookEvery is how often a stream makes sure that its flow still runs.
const lookEvery = time.Second

// errRevoked is the cause of a stream's end whose token is no longer good.
var errRevoked = errors.New("token was revoked")

// visit is a request that was let in.
type visit struct {
	flow records.Flow
	task Task
	done func() // to be called when its bytes have moved
}

// admitStream lets a request in that carries a token of the flow, and returns
// it with the context in which its bytes may move.
func (p *Plane) admitStream(r *http.Request) (*http.Request, visit, error) {
	id, token := flowID(r), bearer(r)
	held, err := p.store.LoadFlow(r.Context(), id)
	if err != nil && !errors.Is(err, records.ErrNotFound) {
		return r, visit{}, err
	}
	// Who has no token is not told what exists.
	if err != nil || !opens(held.Flow, token) {
		return r, visit{}, refused(http.StatusUnauthorized, "unauthorized", "a token of this data flow is needed; it may have been revoked")
	}
	t, err := taskOf(held.Flow.Message)
	if err != nil {
		return r, visit{}, err
	}
	ctx, cut := context.WithCancelCause(r.Context())
	s := &stream{cut: cut}
	p.mu.Lock()
	if p.leaving {
		p.mu.Unlock()
		cut(errLeaving)
		return r, visit{}, busy(http.StatusServiceUnavailable, "not_serving", "this node is leaving; ask another", time.Second)
	}
	if p.streams[id] == nil {
		p.streams[id] = map[*stream]struct{}{}
	}
	p.streams[id][s] = struct{}{}
	p.mu.Unlock()
	var watching sync.WaitGroup
	watching.Go(func() { p.watchStream(ctx, cut, id, token) })
	return r.WithContext(ctx), visit{flow: held.Flow, task: t, done: func() {
		cut(nil)
		watching.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.streams[id], s)
		if len(p.streams[id]) == 0 {
			delete(p.streams, id)
		}
	}}, nil
}

// watchStream cuts the stream once its token is no longer good.
func (p *Plane) watchStream(ctx context.Context, cut context.CancelCauseFunc, id, token string) {
	for sleep(ctx, lookEvery) {
		held, err := p.store.LoadFlow(ctx, id)
		if errors.Is(err, records.ErrNotFound) || err == nil && !opens(held.Flow, token) {
			cut(errRevoked)
			return
		}
	}
}

// lookAtStreams cuts this node's streams of a flow that no longer runs.
func (p *Plane) lookAtStreams(f records.Flow) {
	if len(f.Tokens) > 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for s := range p.streams[f.ID] {
		s.cut(errRevoked)
	}
}

// cutEverywhere ends the streams of a flow whose tokens were revoked, on all
// nodes that live. One that cannot be told looks by itself within a second.
func (p *Plane) cutEverywhere(ctx context.Context, id string) {
	p.lookAtStreams(records.Flow{ID: id})
	executors, err := p.store.ListExecutors(ctx, records.Active, records.Draining)
	if err != nil {
		p.complain(ctx, "list executors", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*lookEvery)
	defer cancel()
	var telling sync.WaitGroup
	for _, e := range executors {
		if e.ID != p.config.Peers.Self() {
			telling.Go(func() { _ = p.config.Peers.Heed(ctx, e.URL, id) }) // it looks by itself, too
		}
	}
	telling.Wait()
}

// serveData streams a pull's dataset to who has its token.
func (p *Plane) serveData(w http.ResponseWriter, r *http.Request) {
	r, v, err := p.admitStream(r)
	if err == nil {
		defer v.done()
		if v.flow.State != records.FlowStarted || v.task.Start == nil || v.task.message().direction() != Pull {
			err = refused(http.StatusConflict, "wrong_state", "there is nothing to be read of this data flow now")
		}
	}
	if err == nil {
		err = p.stream(r.Context(), w, r, v.task) //nolint:contextcheck // the request's, with an end of its own
	}
	p.fail(w, r, err)
}

// fail says why, as long as nothing else was said; later the connection is
// broken, which no reader may take for the end.
func (p *Plane) fail(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	if begun, ok := errors.AsType[*broken](err); ok {
		p.log.WarnContext(r.Context(), "stream broke off", "error", begun.err)
		panic(http.ErrAbortHandler)
	}
	refusal := problemOf(err)
	if refusal.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="dataflows"`)
	}
	refusal.write(w)
}

// broken is what went wrong after the answer had begun.
type broken struct{ err error }

func (b *broken) Error() string { return b.err.Error() }

// stream writes a dataset as an answer, from the offset that the reader asks
// for if the source can begin there.
func (p *Plane) stream(ctx context.Context, w http.ResponseWriter, r *http.Request, t Task) error {
	source, err := p.config.Ends.Source(t)
	if err != nil {
		return refused(http.StatusBadGateway, "source_failed", err.Error())
	}
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	// Neither end may hold the other up for ever.
	stalled := time.AfterFunc(p.config.StallTimeout, func() { cut(move.ErrStalled) })
	defer stalled.Stop()
	from := rangeStart(r)
	validator := strings.Trim(r.Header.Get("If-Range"), `"`)
	body, err := p.openAt(ctx, source, from, validator)
	if err != nil {
		return sourceProblem(err)
	}
	defer body.Close()
	if p.config.MaxBytes > 0 && body.Length > p.config.MaxBytes {
		return refused(http.StatusBadGateway, "source_failed", "the dataset is larger than allowed")
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("Accept-Ranges", "bytes")
	if body.Validator != "" {
		h.Set("ETag", strconv.Quote(tagOf(body.Validator)))
	}
	status := http.StatusOK
	if body.Length >= 0 {
		h.Set("Content-Length", strconv.FormatInt(body.Length-body.From, 10))
		if from > 0 && body.From == from {
			status = http.StatusPartialContent
			h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, body.Length-1, body.Length))
		}
	}
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	// A reader that takes nothing must not hold up who waits for the cut.
	control := http.NewResponseController(w)
	defer context.AfterFunc(ctx, func() { _ = control.SetWriteDeadline(time.Now()) })()
	n, err := io.Copy(w, &reading{
		ctx: ctx, body: body, at: body.From, most: p.config.MaxBytes,
		moved: func(n int) {
			stalled.Reset(p.config.StallTimeout)
			p.config.Events.Moved(int64(n))
		},
	})
	switch {
	case err != nil:
		return &broken{err}
	case body.Length >= 0 && n != body.Length-body.From:
		return &broken{fmt.Errorf("source ended after %d of %d bytes", n, body.Length-body.From)}
	}
	return nil
}

// openAt opens the source at an offset if it is still what the reader has the
// beginning of. Readers know validators by their tag.
func (p *Plane) openAt(ctx context.Context, source move.Source, from int64, tag string) (*move.Body, error) {
	body, err := source.Open(ctx, 0, "")
	if err != nil || from == 0 || from >= body.Length || body.Validator == "" || tag != "" && tag != tagOf(body.Validator) {
		return body, err
	}
	validator := body.Validator
	if err := body.Close(); err != nil {
		return nil, err
	}
	return source.Open(ctx, from, validator)
}

// tagOf is a validator as an entity tag: it must not tell what it is made of.
func tagOf(validator string) string {
	sum := records.FingerprintOf("validator", validator)
	return hex.EncodeToString(sum[:16])
}

// rangeStart is where a reader wants to begin: "bytes=n-", and nothing else of
// what RFC 9110 knows. Other ranges are answered with the whole.
func rangeStart(r *http.Request) int64 {
	of, found := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	from, end, dash := strings.Cut(of, "-")
	n, err := strconv.ParseInt(from, 10, 64)
	if !found || !dash || end != "" || err != nil || n < 0 {
		return 0
	}
	return n
}

// reading ends with its context, and at the limit.
type reading struct {
	ctx   context.Context
	body  io.Reader
	moved func(n int)
	at    int64
	most  int64 // 0: no limit
}

// Read implements [io.Reader].
func (r *reading) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	r.moved(0) // what was read before has been written
	n, err := r.body.Read(b)
	if n > 0 {
		r.moved(n)
	}
	if r.at += int64(n); r.most > 0 && r.at > r.most {
		return 0, move.ErrTooLarge
	}
	if err != nil && !errors.Is(err, io.EOF) && r.ctx.Err() != nil {
		err = context.Cause(r.ctx)
	}
	return n, err
}

// sourceProblem is why a source cannot be read, for who wanted it.
func sourceProblem(err error) error {
	switch {
	case errors.Is(err, move.ErrNotFound):
		return refused(http.StatusNotFound, "dataset_missing", "the dataset's bytes are not there")
	case move.Transient(err):
		return busy(http.StatusBadGateway, "source_failed", err.Error(), 5*time.Second)
	}
	return refused(http.StatusBadGateway, "source_failed", err.Error())
}
