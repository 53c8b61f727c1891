package transfer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
)

// Events that a control plane is told.
const (
	eventPrepared  = "prepared"
	eventStarted   = "started"
	eventCompleted = "completed"
	eventErrored   = "errored"
)

// callback is the message about a move, to be written with it; nil if nobody
// has said where messages go.
func (p *Plane) callback(f records.Flow, event string, state records.FlowState, reason string) *records.NewCallback {
	m := statusMessage{State: string(state)}
	if event == eventErrored {
		m.Error = records.FlowReason(reason)
	}
	return callback(f, p.config.ControlPlane, event, m)
}

// Ended is word of a flow's end at an operator's wish, for who writes that end
// without a [Plane]: to where the flow's messages go, or else to controlPlane.
// Nil: nobody has said where they go.
func Ended(f records.Flow, controlPlane, reason string) *records.NewCallback {
	return callback(f, controlPlane, eventErrored, statusMessage{State: string(records.FlowTerminated), Error: records.FlowReason(reason)})
}

func callback(f records.Flow, controlPlane, event string, m statusMessage) *records.NewCallback {
	base := cmp.Or(f.ReplyTo, controlPlane)
	if base == "" {
		return nil
	}
	m.MessageID, m.DataFlowID = uuid.NewString(), f.ID
	body, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings are always marshalled
	}
	return &records.NewCallback{
		Event: event, Body: body,
		URL: strings.TrimSuffix(base, "/") + "/transfers/" + url.PathEscape(f.ID) + "/dataflow/" + event,
	}
}

// Callbacks that are delivered at once, and how long one stays with the node
// that has taken it.
const (
	callbacksAtOnce = 8
	callbackTenure  = 30 * time.Second
)

// deliver delivers callbacks until ctx ends: at once when one was written here,
// and what others left whenever it looks.
func (p *Plane) deliver(ctx context.Context) {
	for {
		due, err := p.store.DueCallbacks(ctx, callbackTenure+p.config.CallbackTimeout, callbacksAtOnce)
		if err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "callbacks not read", "error", err)
		}
		var delivering sync.WaitGroup
		for _, c := range due {
			delivering.Go(func() { p.deliverOne(ctx, c) })
		}
		delivering.Wait()
		if len(due) == callbacksAtOnce && ctx.Err() == nil {
			continue
		}
		look := time.NewTimer(p.config.CallbackPause/2 + rand.N(p.config.CallbackPause)) //nolint:gosec // spread, not secret
		select {
		case <-look.C:
		case <-p.kicked:
		case <-ctx.Done():
		}
		look.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (p *Plane) deliverOne(ctx context.Context, c records.Callback) {
	status, err := p.post(ctx, c)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // the address may let somebody in
	}
	if ctx.Err() != nil {
		return // it is due again soon, here or elsewhere
	}
	log := p.log.With("event", c.Event, "tries", c.Tries, "status", status)
	switch {
	case err == nil && status/100 == 2:
		p.config.Events.Told(Delivered)
		log.DebugContext(ctx, "callback delivered")
		err = p.store.CallbackDone(ctx, c.Flow, c.Version)
	case err == nil && !passes(status):
		p.config.Events.Told(Refused)
		log.ErrorContext(ctx, "callback refused for good")
		err = p.store.CallbackDone(ctx, c.Flow, c.Version)
	case time.Since(c.CreatedAt) > p.config.CallbackGiveUp:
		p.config.Events.Told(GivenUp)
		log.ErrorContext(ctx, "callback given up", "error", err)
		err = p.store.CallbackDone(ctx, c.Flow, c.Version)
	default:
		p.config.Events.Told(Failed)
		reason := fmt.Sprintf("status %d", status)
		if err != nil {
			reason = err.Error()
		}
		pause := min(p.config.CallbackPause<<min(c.Tries-1, 20), p.config.CallbackPauseMax)
		log.WarnContext(ctx, "callback failed", "again_in", pause.String(), "reason", reason)
		err = p.store.CallbackFailed(ctx, c.Flow, c.Version, pause*3/4+rand.N(pause/2+1), reason) //nolint:gosec // spread, not secret
	}
	if err != nil && ctx.Err() == nil {
		log.WarnContext(ctx, "callback's fate not written", "error", err)
	}
}

// passes reports whether a refusal may pass: the control plane may not know the
// transfer yet, or us, or be busy with it.
func passes(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusRequestTimeout, http.StatusConflict,
		http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500 || status < 400 // a redirect is not followed: somebody else answers there
}

func (p *Plane) post(ctx context.Context, c records.Callback) (int, error) {
	if c.Sealed { // a node with the key may take it next
		return 0, fmt.Errorf("body: %w", records.ErrSealed)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.CallbackTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(c.Body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "probate")
	if p.config.CallbackToken != "" && p.trusts(c.URL) {
		req.Header.Set("Authorization", "Bearer "+p.config.CallbackToken)
	}
	resp, err := p.config.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return resp.StatusCode, nil
}

// trusts reports whether our token may be sent there.
func (p *Plane) trusts(address string) bool {
	for _, base := range append([]string{p.config.ControlPlane}, p.config.CallbackAllow...) {
		if base != "" && begins(address, base) {
			return true
		}
	}
	return false
}

// begins reports whether an address lies under another: same origin, and the
// path of the other or one below it.
func begins(address, base string) bool {
	a, err := url.Parse(address)
	if err != nil {
		return false
	}
	b, err := url.Parse(base)
	if err != nil || a.Scheme != b.Scheme || a.Host != b.Host {
		return false
	}
	path := strings.TrimSuffix(b.EscapedPath(), "/")
	return a.EscapedPath() == path || strings.HasPrefix(a.EscapedPath(), path+"/")
}
