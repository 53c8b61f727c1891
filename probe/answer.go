package probe

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
)

// maxRequest is the size of the largest question, in bytes.
const maxRequest = 4 << 10

// readLimit is how long a question may take to arrive.
const readLimit = 5 * time.Second

// record is POST /probe/records/{id}.
func (h *Handler) record(w http.ResponseWriter, r *http.Request) {
	id, err := records.ParseID(chi.URLParam(r, "id"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "record_id_invalid", err.Error())
		return
	}
	q, ok := readQuestion(w, r)
	if !ok {
		return
	}
	g := &h.questions
	if q.wait > 0 {
		g = &h.polls
	}
	leave, ok := g.enter(remote(r))
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too_many_questions", "too many questions at once")
		return
	}
	defer leave()
	me, ok := h.identity(w)
	if !ok {
		return
	}
	s := Statement{
		Kind: KindRecord, Cluster: h.cfg.Cluster, Executor: me.Executor, Slot: me.Slot,
		Record: id, Epoch: q.epoch, Nonce: q.nonce, Proxied: proxied(r), Answer: AnswerNotMe,
	}
	if q.executor == me.Executor {
		running, ok := h.await(w, r, id, q.wait)
		if !ok {
			return
		}
		s.Answer = AnswerNotRunning
		if running {
			s.Answer = AnswerRunning
		}
	}
	reply(w, me, s)
}

// await reports whether the record is running, after waiting for that to end
// if it may. not ok: whoever asked is gone.
func (h *Handler) await(w http.ResponseWriter, r *http.Request, id records.ID, wait time.Duration) (running, ok bool) {
	done, running := h.cfg.Runs.Entry(id)
	if !running || wait == 0 {
		return running, true
	}
	// The header goes out at once: now the watch has begun, and when its
	// connection breaks, the watcher knows that something of ours broke.
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush() // unsupported: the header comes with the body
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return false, false
	case <-timer.C:
		return true, true
	case <-done:
		_, running = h.cfg.Runs.Entry(id) // it may have been claimed again
		return running, true
	}
}

// witness is POST /probe/witness. It is one hop: the suspect is asked for a
// record, not for a witness.
func (h *Handler) witness(w http.ResponseWriter, r *http.Request) {
	q, ok := readQuestion(w, r)
	if !ok {
		return
	}
	leave, ok := h.witnesses.enter(remote(r))
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too_many_questions", "too many questions at once")
		return
	}
	defer leave()
	me, ok := h.identity(w)
	if !ok {
		return
	}
	s := Statement{
		Kind: KindWitness, Cluster: h.cfg.Cluster, Executor: me.Executor, Slot: me.Slot,
		Nonce: q.nonce, Suspect: q.executor, Saw: Unknown,
	}
	if q.executor == me.Executor {
		s.Saw, s.SuspectAlive = NotRunning, true // of the zero record
	} else if e, known := h.cfg.Peers.Lookup(q.executor); known {
		o := h.cfg.Prober.Probe(r.Context(), e, records.ID{}, 0)
		if o.Cancelled {
			refuse(w, http.StatusServiceUnavailable, "cancelled", "the probe was cancelled")
			return
		}
		s.Saw, s.SuspectAlive = o.Verdict, o.Alive()
	}
	reply(w, me, s)
}

// identity refuses the question if this process is not registered.
func (h *Handler) identity(w http.ResponseWriter) (Identity, bool) {
	me := h.cfg.Self.Identity()
	if me.Key == nil {
		refuse(w, http.StatusServiceUnavailable, "not_registered", "this process is not registered")
	}
	return me, me.Key != nil
}

func reply(w http.ResponseWriter, me Identity, s Statement) {
	b, err := Sign(me.Key, s)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "not_signed", err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b) // whoever asked may be gone; nobody to tell
}

// asked is a question as the handler reads it.
type asked struct {
	executor records.ExecutorID
	epoch    int64
	nonce    Nonce
	wait     time.Duration
}

// readQuestion reads the body, or refuses it.
func readQuestion(w http.ResponseWriter, r *http.Request) (asked, bool) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(readLimit)) // unsupported: the server's own limits hold
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	_ = rc.SetReadDeadline(time.Time{})
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		refuse(w, http.StatusRequestEntityTooLarge, "question_too_large", "a question has at most 4 KiB")
		return asked{}, false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "question_incomplete", "the question did not arrive")
		return asked{}, false
	}
	q, err := parseQuestion(b)
	if err != nil {
		refuse(w, http.StatusBadRequest, "question_invalid", err.Error())
		return asked{}, false
	}
	return q, true
}

func parseQuestion(b []byte) (asked, error) {
	var wire request
	if err := json.Unmarshal(b, &wire); err != nil {
		return asked{}, err
	}
	executor, err1 := records.ParseExecutorID(wire.Executor)
	nonce, err2 := ParseNonce(wire.Nonce)
	var err3 error
	if wire.WaitMS < 0 || wire.WaitMS > MaxWait.Milliseconds() {
		err3 = errors.New("wait_ms: want 0 to 60000")
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return asked{}, err
	}
	return asked{executor: executor, epoch: wire.Epoch, nonce: nonce, wait: time.Duration(wire.WaitMS) * time.Millisecond}, nil
}

// proxied reports whether the question carries what only a proxy adds. The
// client sends none of these.
func proxied(r *http.Request) bool {
	for _, name := range [...]string{"Via", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip"} {
		if len(r.Header.Values(name)) > 0 {
			return true
		}
	}
	return false
}

// authorized demands the fleet's token, if there is one. Comparing hashes
// takes the same time whatever was sent.
func (h *Handler) authorized(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(h.cfg.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		have := sha256.Sum256([]byte(token))
		same := subtle.ConstantTimeCompare(have[:], want[:]) == 1
		if h.cfg.Token != "" && (!same || !strings.EqualFold(scheme, "Bearer")) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "token_wrong", "the fleet's token is missing or wrong")
			return
		}
		next.ServeHTTP(w, r)
	})
}
