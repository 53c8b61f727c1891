//go:build unix

package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/tests/fleet"
)

// do is POST /do/{key}: a keyed request, handled as its query asks.
func (n *node) do(w http.ResponseWriter, r *http.Request) {
	key, q := r.PathValue("key"), r.URL.Query()
	wait, err := time.ParseDuration(q.Get("wait"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req := takeover.Request{
		Key: fleet.KeyOf(key), Operation: "book", Fingerprint: records.FingerprintOf("book", key), Wait: wait,
		Terms: takeover.Terms{Reconciler: n.reconciler(q.Get("reconciler"), key)},
	}
	got, err := n.Do(r.Context(), req, n.work(key, q))
	switch {
	case errors.Is(err, takeover.ErrNotServing), errors.Is(err, records.ErrUnavailable):
		respond(w, http.StatusServiceUnavailable, fleet.Answer{Error: err.Error()})
		return
	case err != nil:
		respond(w, http.StatusInternalServerError, fleet.Answer{Error: err.Error()})
		return
	}
	answer := fleet.Answer{Outcome: got.Outcome.String(), Epoch: got.Record.Epoch, Executor: got.Record.Executor.String()}
	if got.Record.Response != nil {
		answer.Body = string(got.Record.Response.Body)
	}
	respond(w, http.StatusOK, answer)
}

// recover is what the sweep does with records that nobody asks for.
func (n *node) recover(r records.Record) (takeover.Terms, takeover.Work, bool) {
	return takeover.Terms{Reconciler: n.reconciler("", r.Key)}, nil, true
}

// work is what a request asks for.
func (n *node) work(key string, q url.Values) takeover.Work {
	return func(ctx context.Context) takeover.Completion {
		switch q.Get("work") {
		case "instant":
			return completed("instant under " + key)
		case "die":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if q.Get("stubborn") != "" {
			ctx = context.WithoutCancel(ctx)
		}
		claim, _ := takeover.ClaimFrom(ctx)
		said, err := n.ledger(ctx, http.MethodPost, key, claim.Record)
		switch {
		case err != nil:
			n.log.Warn("work interrupted", "key", key, "cause", fmt.Sprint(context.Cause(ctx)), "error", err)
			return takeover.Completion{Reason: err.Error()}
		case said.status == http.StatusConflict:
			n.log.Warn("ledger refused", "key", key, "epoch", claim.Record.Epoch)
			return takeover.Completion{Reason: "the ledger refused this epoch"}
		case said.status != http.StatusCreated:
			return takeover.Completion{Reason: fmt.Sprintf("the ledger answered %d", said.status)}
		}
		return completed(said.body)
	}
}

func completed(body string) takeover.Completion {
	return takeover.Completion{Kind: takeover.Completed, Response: response(body)}
}

func response(body string) records.Response {
	return records.Response{Status: http.StatusCreated, Headers: []records.Header{{Name: "Content-Type", Value: "text/plain"}}, Body: []byte(body)}
}

// reconciler finds out what came of an interrupted request.
func (n *node) reconciler(kind, key string) takeover.Reconciler {
	switch kind {
	case "none":
		return nil
	case "reexecute":
		return takeover.Reexecute
	}
	return takeover.ReconcilerFunc(func(ctx context.Context, r records.Record, _ takeover.Request) (takeover.Finding, error) {
		said, err := n.ledger(ctx, http.MethodGet, key, r)
		if err != nil {
			return takeover.Finding{}, err
		}
		n.log.Info("reconciled", "key", key, "epoch", r.Epoch, "found", said.state)
		switch said.state {
		case "applied":
			return takeover.FoundApplied(response(said.body)), nil
		case "not_applied":
			return takeover.FoundNotApplied(), nil
		case "pending":
			return takeover.FoundPending(50 * time.Millisecond), nil
		}
		return takeover.Finding{}, nil
	})
}

// reply is what the ledger says.
type reply struct {
	status int
	state  string // of an entry that was asked about
	body   string
}

// ledger asks the service behind this node, under the record's fence.
func (n *node) ledger(ctx context.Context, method, key string, r records.Record) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.spec.Ledger+"/entries/"+url.PathEscape(key), http.NoBody)
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Probate-Record", r.ID.String())
	req.Header.Set("Probate-Epoch", strconv.FormatInt(r.Epoch, 10))
	req.Header.Set("Probate-Executor", r.Executor.String())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, state: resp.Header.Get("Ledger-State"), body: string(body)}, err
}
