package main

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// shop takes payments.
type shop struct {
	http.Handler
	takes time.Duration // what a payment needs

	mu       sync.Mutex
	payments []payment
	visits   int
	work     map[string]*work // by operation
}

// payment is an effect.
type payment struct {
	Order     string          `json:"order"`
	Operation string          `json:"operation"`
	Key       string          `json:"key"`
	Epoch     int64           `json:"epoch"`
	Paid      json.RawMessage `json:"paid"`
}

// work is what is known of one operation.
type work struct {
	epoch   int64 // the greatest that was heard of
	running int
	number  int // of the payment that was made; 0: none
}

func newShop(takes time.Duration) *shop {
	s := &shop{takes: takes, work: map[string]*work{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{id}/payments", s.pay)
	mux.HandleFunc("POST /visits", s.visit)
	mux.HandleFunc("POST /reconcile", s.reconcile)
	mux.HandleFunc("GET /ledger", s.ledger)
	s.Handler = mux
	return s
}

// pay is POST /orders/{id}/payments. A node says under which epoch it asks.
func (s *shop) pay(w http.ResponseWriter, r *http.Request) {
	paid, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	epoch, noEpoch := strconv.ParseInt(r.Header.Get("Idempotency-Epoch"), 10, 64)
	if err != nil || noEpoch != nil || !json.Valid(paid) {
		http.Error(w, "want JSON, through a node", http.StatusBadRequest)
		return
	}
	p := payment{
		Order: r.PathValue("id"), Operation: r.Header.Get("Idempotency-Operation"), Key: r.Header.Get("Idempotency-Key"),
		Epoch: epoch, Paid: paid,
	}
	if !s.begin(p.Operation, p.Epoch) {
		http.Error(w, "a greater epoch is known", http.StatusConflict)
		return
	}
	<-time.After(s.takes)
	number, ok := s.finish(p)
	if !ok {
		http.Error(w, "a greater epoch is known by now", http.StatusConflict)
		return
	}
	w.Header().Set("Location", location(number))
	writeJSON(w, http.StatusCreated, receipt(number, p))
}

// begin admits a request, unless a greater epoch is known.
func (s *shop) begin(operation string, epoch int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of(operation)
	if epoch < k.epoch {
		return false
	}
	k.epoch = epoch
	k.running++
	return true
}

// finish makes the payment, unless a greater epoch has become known.
func (s *shop) finish(p payment) (number int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of(p.Operation)
	k.running--
	if p.Epoch < k.epoch {
		return 0, false
	}
	s.payments = append(s.payments, p)
	k.number = len(s.payments)
	return k.number, true
}

// of needs the lock.
func (s *shop) of(operation string) *work {
	if s.work[operation] == nil {
		s.work[operation] = &work{}
	}
	return s.work[operation]
}

func location(number int) string { return "/payments/" + strconv.Itoa(number) }

func receipt(number int, p payment) map[string]any {
	return map[string]any{"payment": number, "order": p.Order, "paid": p.Paid}
}

// reconcile is POST /reconcile: what became of an operation?
func (s *shop) reconcile(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Operation string `json:"operation_ref"`
		Epoch     int64  `json:"epoch"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of(q.Operation)
	k.epoch = max(k.epoch, q.Epoch)
	switch {
	case k.number > 0:
		body, err := json.Marshal(receipt(k.number, s.payments[k.number-1]))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		writeJSON(w, http.StatusOK, map[string]any{"finding": "applied", "response": map[string]any{
			"status": http.StatusCreated, "body": string(body),
			"headers": map[string][]string{"Content-Type": {"application/json"}, "Location": {location(k.number)}},
		}})
	case k.running > 0:
		writeJSON(w, http.StatusOK, map[string]any{"finding": "pending"})
	default:
		writeJSON(w, http.StatusOK, map[string]any{"finding": "not_applied"})
	}
}

// visit is POST /visits, which no route records.
func (s *shop) visit(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visits++
	writeJSON(w, http.StatusOK, map[string]int{"visits": s.visits})
}

// ledger is GET /ledger.
func (s *shop) ledger(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"payments": append([]payment{}, s.payments...), "visits": s.visits})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a node that is gone will ask
}
