package transfer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
)

// authorized lets in who has one of the tokens, or a certificate where those
// are taken.
func (p *Plane) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked := len(p.tokens) > 0 || p.config.Certificates
		certified := p.config.Certificates && r.TLS != nil && len(r.TLS.VerifiedChains) > 0
		if asked && !certified && !among(p.tokens, bearer(r)) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="dataflows"`)
			refused(http.StatusUnauthorized, "unauthorized", "a bearer token or a certificate of a control plane is needed").write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// bearer is the token of a request, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

func among(known [][sha256.Size]byte, token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for _, k := range known { // all of them, so that time does not tell which
		found |= subtle.ConstantTimeCompare(k[:], sum[:])
	}
	return token != "" && found == 1
}

// flowID is the flow that a path names.
func flowID(r *http.Request) string {
	id := chi.URLParam(r, "id")
	if r.URL.RawPath == "" {
		return id
	}
	if plain, err := url.PathUnescape(id); err == nil {
		return plain
	}
	return id
}

// readMessage reads a message and looks at what this fleet has to say to it.
func (p *Plane) readMessage(r *http.Request) (Message, error) {
	m, err := readMessage(r.Body)
	if err != nil {
		return m, err
	}
	if len(p.config.CallbackAllow) > 0 && m.CallbackAddress != "" && !p.trusts(m.CallbackAddress) {
		return m, &invalid{[]error{errors.New("callbackAddress: not one that this data plane may call")}}
	}
	if _, err := declaredBytes(Task{Start: &m}); err != nil {
		return m, &invalid{[]error{err}}
	}
	return m, nil
}

// started tells a consumer's flow that the other side has begun.
func (p *Plane) started(r *http.Request) (*answer, error) {
	c, err := readCommand(r.Body)
	if err != nil {
		return nil, err
	}
	return p.change(r, c, records.FlowStarted, func(f records.Flow, t Task) error {
		switch {
		case f.Moves || t.Prepare == nil:
			return refused(http.StatusConflict, "wrong_side", "started is said to the consumer's data plane")
		case c.DataAddress != nil && t.message().direction() == Push:
			return &invalid{[]error{errors.New("dataAddress: a push has none here")}}
		}
		return nil
	})
}

// resume goes on with a flow that was suspended.
func (p *Plane) resume(r *http.Request) (*answer, error) {
	c, err := readCommand(r.Body)
	if err != nil {
		return nil, err
	}
	leave, err := p.admit()
	if err != nil {
		return nil, err
	}
	defer leave()
	a, err := p.change(r, c, records.FlowStarted, func(f records.Flow, _ Task) error {
		if f.State != records.FlowSuspended && !f.State.Running() {
			return refused(http.StatusConflict, "wrong_state", "a data flow that is "+string(f.State)+" cannot be resumed")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	a.bare = false
	if !a.flow.Moves {
		return p.readmit(r.Context(), a)
	}
	held, err := p.ensure(r.Context(), a.flow.ID, startPatience)
	a.flow = held.Flow
	return a, err
}

// readmit answers the repeat of a resume whose answer was lost, and with it the
// address, with a new one.
func (p *Plane) readmit(ctx context.Context, a *answer) (*answer, error) {
	t, err := taskOf(a.flow.Message)
	if err == nil && a.replayed && p.offers(a.flow, t) {
		a.flow, a.address, err = p.reissue(ctx, a.flow.ID)
	}
	return a, err
}

// change moves a flow that nobody runs into a running state, with the address
// that came along. One that runs already is left as it is: the request is a
// repeat.
func (p *Plane) change(r *http.Request, c command, to records.FlowState, check func(f records.Flow, t Task) error) (*answer, error) {
	ctx, attempt := r.Context(), records.NewToken()
	for try := 0; ; try++ {
		held, err := p.store.LoadFlow(ctx, flowID(r))
		if err != nil {
			return nil, err
		}
		f := held.Flow
		t, err := taskOf(f.Message)
		if err != nil {
			return nil, err
		}
		switch {
		case f.State.Terminal():
			return nil, refused(http.StatusConflict, "flow_has_ended", "the data flow is "+string(f.State)+", which is final")
		case f.State == records.FlowPreparing:
			return nil, refused(http.StatusConflict, "wrong_state", "a data flow that is "+string(f.State)+" cannot become "+string(to))
		case check(f, t) != nil:
			return nil, check(f, t)
		case f.State.Running() && f.Wanted == "":
			return &answer{status: http.StatusOK, flow: f, bare: true, replayed: true}, nil
		}
		moved, address := f, (*DataAddress)(nil)
		if f.State.Running() { // what is true now will not be for long
			err = busy(http.StatusServiceUnavailable, "order_pending", "the data flow is about to become "+string(f.Wanted)+"; ask again then", time.Second)
		} else if err = p.free(ctx, held); err == nil {
			moved, address, err = p.moveTo(ctx, f, t, to, c.DataAddress, attempt)
		}
		switch {
		case err == nil:
			return &answer{status: http.StatusOK, flow: moved, address: address, bare: true}, nil
		case !errors.Is(err, records.ErrFenced) && !f.State.Running() || try == 20:
			return nil, err
		case !sleep(ctx, 25*time.Millisecond): // its last execution is about to let go of it
			return nil, context.Cause(ctx)
		}
	}
}

// moveTo moves a flow with a new address, if there is one. What was begun at the
// old one cannot be gone on with elsewhere, and is taken away.
func (p *Plane) moveTo(ctx context.Context, f records.Flow, t Task, to records.FlowState, at *DataAddress, attempt records.Token) (records.Flow, *DataAddress, error) {
	m := records.FlowMove{ID: f.ID, Attempt: attempt, Version: f.Version, To: to}
	elsewhere := false
	if at != nil {
		elsewhere = f.Moves && !slices.Equal(t.Destination().place(), at.place())
		var err error
		if t, err = p.readdress(f, t, at); err != nil {
			return f, nil, err
		}
		if m.Message, err = t.bytes(); err != nil {
			return f, nil, err
		}
	}
	if elsewhere {
		m.Progress = &records.Progress{Total: f.Progress.Total}
	}
	var address *DataAddress
	if f.State == records.FlowSuspended && p.offers(f, t) { // what was issued before was revoked
		var err error
		if address, m.Tokens, err = p.issue(f.ID, f.Profile, nil); err != nil {
			return f, nil, err
		}
	}
	moved, err := p.store.MoveFlow(ctx, m)
	if err == nil && elsewhere {
		p.discard(ctx, f)
	}
	return moved, address, err
}

// readdress gives a task another address, if there may be written to.
func (p *Plane) readdress(f records.Flow, t Task, at *DataAddress) (Task, error) {
	t.Address = at
	if !f.Moves {
		return t, nil
	}
	if _, err := p.config.Ends.Sink(t); err != nil {
		return t, &invalid{[]error{err}}
	}
	if t.Slot == "" && p.config.Ends.Bound(t) {
		t.Slot = p.config.Slot
	}
	return t, nil
}

// offers reports whether others come to this fleet for the flow's data, or with
// it.
func (p *Plane) offers(f records.Flow, t Task) bool {
	if f.Moves {
		return false
	}
	return (t.Start != nil) == (t.message().direction() == Pull)
}

func (p *Plane) suspend(r *http.Request) (*answer, error) {
	return p.ordered(r, records.FlowSuspended)
}

func (p *Plane) terminate(r *http.Request) (*answer, error) {
	return p.ordered(r, records.FlowTerminated)
}

func (p *Plane) ordered(r *http.Request, to records.FlowState) (*answer, error) {
	c, err := readCommand(r.Body)
	if err != nil {
		return nil, err
	}
	f, err := p.order(r.Context(), flowID(r), records.FlowWish{State: to, Reason: c.Reason})
	if err != nil {
		return nil, err
	}
	return &answer{status: http.StatusOK, flow: f, bare: true}, nil
}

// completed ends a flow of which only the other side knows that all was moved.
func (p *Plane) completed(r *http.Request) (*answer, error) {
	if err := readEmpty(r.Body); err != nil {
		return nil, err
	}
	held, err := p.store.LoadFlow(r.Context(), flowID(r))
	f := held.Flow
	switch {
	case err != nil:
		return nil, err
	case f.State == records.FlowCompleted:
		return &answer{status: http.StatusOK, flow: f, bare: true, replayed: true}, nil
	case f.State != records.FlowStarted:
		return nil, refused(http.StatusConflict, "wrong_state", "a data flow that is "+string(f.State)+" cannot be completed")
	case f.Moves:
		return nil, refused(http.StatusConflict, "wrong_side", "this data plane moves the bytes, and says itself when they are all there")
	}
	f, err = p.store.MoveFlow(r.Context(), records.FlowMove{
		ID: f.ID, Attempt: records.NewToken(), Version: f.Version, To: records.FlowCompleted, Tokens: []byte{},
	})
	if err != nil {
		return nil, err
	}
	p.cutEverywhere(r.Context(), f.ID)
	p.discard(r.Context(), f)
	return &answer{status: http.StatusOK, flow: f, bare: true}, nil
}

func (p *Plane) status(r *http.Request) (*answer, error) {
	held, err := p.store.LoadFlow(r.Context(), flowID(r))
	if err != nil {
		return nil, err
	}
	a := &answer{status: http.StatusOK, flow: held.Flow, full: true, owner: &held}
	if run := p.running(held.Flow.ID); run != nil && run.fence == held.Fence {
		a.flow.Progress.Bytes = max(run.bytes.Load(), a.flow.Progress.Bytes)
	}
	return a, nil
}
