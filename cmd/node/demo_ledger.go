package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/probate-dev/probate/api"
)

// ledger is the service behind the nodes of a demo. It books whatever it is
// sent, knows nothing of duplicates, and holds its first answer back until
// whoever asked is gone. Asked what became of an operation it tells the truth,
// and refuses smaller epochs from then on.
type ledger struct {
	url    string
	script *script
	server *http.Server
	served sync.WaitGroup

	mu        sync.Mutex
	entries   []booking
	sent      int // payments that came in
	questions int
	epochs    map[string]int64 // the greatest known, by operation
	held      bool

	released chan struct{} // closed when nothing is held back any more
}

// booking is one effect.
type booking struct {
	operation, path, body string
	epoch                 int64
}

func openLedger(ctx context.Context, s *script) (*ledger, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the ledger: %w", err)
	}
	l := &ledger{url: "http://" + listener.Addr().String(), script: s, epochs: map[string]int64{}, released: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/payments", l.book)
	mux.HandleFunc("POST /reconcile", l.tell)
	l.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	l.served.Go(func() { _ = l.server.Serve(listener) }) // until it is closed
	s.say("ledger", "listens at %s", l.url)
	return l, nil
}

// release lets the ledger answer. It is called once.
func (l *ledger) release() { close(l.released) }

func (l *ledger) close() {
	_ = l.server.Close()
	l.served.Wait()
}

// book is POST /orders/{id}/payments.
func (l *ledger) book(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
	operation := r.Header.Get("Idempotency-Operation")
	epoch, err2 := strconv.ParseInt(r.Header.Get("Idempotency-Epoch"), 10, 64)
	if err != nil || err2 != nil {
		http.Error(w, "want a body and an epoch", http.StatusBadRequest)
		return
	}
	b := booking{operation: operation, path: r.URL.Path, body: string(body), epoch: epoch}
	first, ok := l.enter(b)
	if !ok {
		http.Error(w, "a greater epoch is known", http.StatusConflict)
		return
	}
	l.script.say("ledger", "booked %s on %s at epoch %d", b.body, b.path, b.epoch)
	if first {
		l.script.say("ledger", "… and does not come to answer")
		l.hold()
		select {
		case <-r.Context().Done(): // whoever asked is gone
			return
		case <-l.released:
		}
	}
	status, header, receipt := b.receipt()
	for name, value := range header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, receipt) // a node that is gone will ask
}

// enter books the payment, unless a greater epoch is known.
func (l *ledger) enter(b booking) (first, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if b.epoch < l.epochs[b.operation] {
		return false, false
	}
	l.epochs[b.operation] = b.epoch
	l.entries = append(l.entries, b)
	return len(l.entries) == 1, true
}

// receipt is the answer to a payment.
func (b booking) receipt() (status int, header map[string]string, body string) {
	return http.StatusCreated, map[string]string{"Content-Type": "application/json", "Location": "/payments/1"}, `{"payment":1,"paid":` + b.body + `}`
}

// tell is POST /reconcile.
func (l *ledger) tell(w http.ResponseWriter, r *http.Request) {
	var q api.Question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(l.find(q))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.Copy(w, bytes.NewReader(answer)) // a node that is gone will ask again
}

func (l *ledger) find(q api.Question) api.Statement {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.questions++
	l.epochs[q.OperationRef] = max(l.epochs[q.OperationRef], q.Epoch)
	for _, b := range l.entries {
		if b.operation != q.OperationRef {
			continue
		}
		l.script.say("ledger", "was asked what became of it, at epoch %d. Says: applied, and with which answer", q.Epoch)
		status, header, body := b.receipt()
		headers := map[string][]string{}
		for name, value := range header {
			headers[name] = []string{value}
		}
		return api.Statement{Finding: "applied", Response: &api.ResponseDocument{Status: status, Headers: headers, Body: &body}}
	}
	l.script.say("ledger", "was asked what became of it, at epoch %d. Says: not applied", q.Epoch)
	return api.Statement{Finding: "not_applied"}
}

func (l *ledger) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// holds reports whether a payment is booked and not answered.
func (l *ledger) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

func (l *ledger) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.questions
}

func (l *ledger) received() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// lines are the bookings, for a person.
func (l *ledger) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, len(l.entries))
	for i, b := range l.entries {
		lines[i] = fmt.Sprintf("%s  %s  booked at epoch %d", b.path, b.body, b.epoch)
	}
	return lines
}
