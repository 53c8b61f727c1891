package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// controlPlane orders the transfer of a demo, and is told what becomes of it.
type controlPlane struct {
	url    string
	flow   *demoFlow
	server *http.Server
	served sync.WaitGroup

	mu     sync.Mutex
	events map[string]string // what was told, by message: it may be told twice
}

func openControlPlane(ctx context.Context, f *demoFlow) (*controlPlane, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the control plane: %w", err)
	}
	c := &controlPlane{url: "http://" + listener.Addr().String(), flow: f, events: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /transfers/{id}/dataflow/{event}", c.hear)
	c.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	c.served.Go(func() { _ = c.server.Serve(listener) }) // until it is closed
	f.story.say("control", "listens at %s", c.url)
	return c, nil
}

func (c *controlPlane) close() {
	_ = c.server.Close()
	c.served.Wait()
}

// hear takes a callback.
func (c *controlPlane) hear(w http.ResponseWriter, r *http.Request) {
	var m struct{ MessageID, DataFlowID, State, Error string }
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&m)
	if err != nil || m.DataFlowID != r.PathValue("id") || m.MessageID == "" {
		http.Error(w, "no such message", http.StatusBadRequest)
		return
	}
	if m.DataFlowID != c.flow.id {
		return // of a demo that was interrupted
	}
	event := r.PathValue("event")
	c.mu.Lock()
	_, again := c.events[m.MessageID]
	c.events[m.MessageID] = event
	c.mu.Unlock()
	if !again {
		c.flow.story.say("control", "is told: %s", strings.TrimSpace(event+" "+m.Error))
	}
}

// told is how many messages of an event have come; "": of any.
func (c *controlPlane) told(event string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, e := range c.events {
		if event == "" || e == event {
			n++
		}
	}
	return n
}

// started is the answer to a start.
type started struct {
	state    string
	replayed bool // the flow was there before
}

// start sends the start, and again as long as it has no answer.
func (c *controlPlane) start(ctx context.Context, base string) (started, error) {
	c.flow.story.say("control", "POST /dataflows/start, processId %s…", c.flow.id[:8])
	message, err := json.Marshal(map[string]any{
		"messageId": "start-" + c.flow.id, "participantId": "provider", "counterPartyId": "consumer", "dataspaceContext": "demo",
		"processId": c.flow.id, "agreementId": "agreement", "datasetId": c.flow.dataset(), "profile": demoProfile,
		"dataAddress": map[string]any{"@type": "DataAddress", "endpointType": demoProfile, "endpoint": "file://out/file.bin"},
	})
	if err != nil {
		return started{}, err
	}
	for {
		s, err := c.post(ctx, base, message)
		if err == nil || !errors.Is(err, errAgain) {
			return s, err
		}
		c.flow.story.say("control", "%v. Sends it again", err)
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
	}
}

const demoProfile = "https://w3id.org/dspace-sig/profile/file-push"

// errAgain is a reason to send a message again.
var errAgain = errors.New("has no answer")

func (c *controlPlane) post(ctx context.Context, base string, message []byte) (started, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+flowsPath+"/start", bytes.NewReader(message))
	if err != nil {
		return started{}, err
	}
	r.GetBody = nil // when to send again is for the control plane to say
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.flow.story.balancer.client.Do(r)
	if err != nil {
		return started{}, fmt.Errorf("%w: %w", errAgain, err)
	}
	defer resp.Body.Close()
	by := c.flow.story.servedBy(resp, base)
	var m struct{ State string }
	switch err := json.NewDecoder(resp.Body).Decode(&m); {
	case resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable:
		return started{}, fmt.Errorf("%w: %d for %s", errAgain, resp.StatusCode, by)
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted:
		return started{}, fmt.Errorf("%s answers the start %d", by, resp.StatusCode)
	case err != nil:
		return started{}, fmt.Errorf("read what %s answers: %w", by, err)
	}
	s := started{m.State, resp.Header.Get("Idempotent-Replayed") == "true"}
	word := "it is new"
	if s.replayed {
		word = "it is known"
	}
	c.flow.story.say("control", "is answered %s by %s: %s", s.state, by, word)
	return s, nil
}

// servedBy is the node that has answered.
func (s *story) servedBy(resp *http.Response, base string) string {
	for _, a := range s.nodes {
		if a.public == base {
			return a.name
		}
	}
	return resp.Header.Get(headerServedBy)
}

// flowProgress is what a node says of a flow.
type flowProgress struct {
	State, Error, SHA256 string
	Bytes, SafeBytes     int64
}

// progress asks a node how the flow stands.
func (c *controlPlane) progress(ctx context.Context, a *actor) (flowProgress, error) {
	var p flowProgress
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.public+flowsPath+"/"+c.flow.id+"/status", http.NoBody)
	if err != nil {
		return p, err
	}
	resp, err := c.flow.story.balancer.client.Do(r)
	if err != nil {
		return p, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return p, fmt.Errorf("%s is asked how the flow stands and answers %d", a.name, resp.StatusCode)
	}
	return p, json.NewDecoder(resp.Body).Decode(&p)
}
