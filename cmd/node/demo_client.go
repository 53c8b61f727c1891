package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// customer sends a payment through the balancer and, as long as it has no
// answer, sends it again with the same key.
type customer struct {
	name  string
	story *story
	key   string

	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	answer *receipt
}

// receipt is an answer.
type receipt struct {
	at     time.Duration // since the demo began
	status int
	header http.Header
	body   string
}

// same reports whether two answers say the same.
func (r receipt) same(other receipt) bool {
	return r.status == other.status && r.body == other.body && r.header.Get("Location") == other.header.Get("Location") && r.body != ""
}

// pay begins; see answered.
func (c *customer) pay(ctx context.Context, body string) {
	ctx, c.cancel = context.WithCancel(ctx)
	c.done = make(chan struct{})
	c.story.say(c.name, "POST %s %s, Idempotency-Key: %s…", demoPath, body, c.key[:8])
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			r, err := c.send(ctx, body)
			if err == nil {
				c.receive(r)
				return
			}
			if ctx.Err() == nil {
				c.story.say(c.name, "%v. Sends it again, with the same key", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
}

// leave lets go of a payment that has no answer.
func (c *customer) leave() {
	if c.cancel != nil {
		c.cancel()
		<-c.done
	}
}

// send sends once. What asks for another try is an error.
func (c *customer) send(ctx context.Context, body string) (receipt, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.story.balancer.url+demoPath, strings.NewReader(body))
	if err != nil {
		return receipt{}, err
	}
	r.GetBody = nil // when to send again is for this client to say
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", c.key)
	r.Header.Set("Prefer", "wait=60")
	resp, err := c.story.balancer.client.Do(r)
	if err != nil {
		return receipt{}, errors.New("the connection broke")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return receipt{}, errors.New("the answer broke off")
	}
	via := resp.Header.Get(headerServedBy)
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return receipt{}, fmt.Errorf("is answered %d by the balancer, for %s", resp.StatusCode, via)
	case http.StatusConflict:
		return receipt{}, fmt.Errorf("is answered 409 by %s", via)
	}
	var problem struct{ Code string }
	if what := resp.Header.Get("Idempotency-Status"); what != "" {
		c.story.say(c.name, "is answered %d by %s (%s): %s", resp.StatusCode, via, what, text)
	} else if json.Unmarshal(text, &problem) == nil {
		c.story.say(c.name, "is answered %d by %s: %s", resp.StatusCode, via, problem.Code)
	}
	return receipt{time.Since(c.story.begun), resp.StatusCode, resp.Header, string(text)}, nil
}

func (c *customer) receive(r receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = &r
}

func (c *customer) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer != nil
}

// last is the answer of a customer that has one.
func (c *customer) last() receipt {
	c.mu.Lock()
	defer c.mu.Unlock()
	return *c.answer
}
