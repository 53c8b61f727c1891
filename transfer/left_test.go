package transfer_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// flowStore is a store with all that a test wants to do to it.
type flowStore interface {
	records.Store
	records.Flows
}

// left makes what an executor leaves behind that died while it had flow f: the
// flow in a state, and its record in progress.
func left(t *testing.T, s flowStore, state records.FlowState, slot string) records.Record {
	t.Helper()
	const id = "f"
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	public, _, err := ed25519.GenerateKey(nil)
	check(err)
	e, err := s.Register(t.Context(), records.Registration{
		ID: records.ExecutorID{1, 7}, Slot: "of another", URL: "http://127.0.0.1:2", PublicKey: public, Policy: records.PolicyProbe, LeaseTTL: time.Hour,
	})
	check(err)
	key := records.Key{Realm: "dataflow", Principal: "probate/dataflow/v1", Key: id}
	f := records.NewFlow{
		ID: id, Record: key.ID(), Fingerprint: records.FingerprintOf("f"), Moves: true, State: records.FlowStarted, Attempt: records.NewToken(),
		Profile: "x-push", Dataset: "d", Message: fmt.Appendf(nil, `{"slot":%q,"start":{"messageId":"m","participantId":"p","counterPartyId":"c",
			"dataspaceContext":"x","processId":%q,"agreementId":"a","datasetId":"d","profile":"x-push",
			"dataAddress":{"endpointType":"file","endpoint":"file://%s"}}}`, slot, id, id),
	}
	_, _, err = s.CreateFlow(t.Context(), f)
	check(err)
	got, err := s.Reserve(t.Context(), records.Reservation{
		ID: key.ID(), Realm: key.Realm, Key: key.Key, Operation: "dataflow", Resource: "d", Fingerprint: f.Fingerprint, Request: f.Message,
		By: e.ID, Attempt: records.NewToken(),
	})
	check(err)
	if state != records.FlowStarted {
		_, err = s.MoveFlow(t.Context(), records.FlowMove{ID: id, Attempt: records.NewToken(), Fence: got.Record.Fence(), To: state})
		check(err)
	}
	_, err = s.FenceByOperator(t.Context(), records.Condemnation{Executor: e.ID, Actor: "test", Reason: "test", Force: true})
	check(err)
	return got.Record
}

// TestLeft is about flows whose owner died at a bad moment.
func TestLeft(t *testing.T) {
	t.Parallel()
	// atEase lets nothing happen that was not asked for.
	atEase := func(s *flowStore) func(p *transfer.Config) {
		return func(p *transfer.Config) { *s, p.StrayEvery = p.Store.(flowStore), time.Hour }
	}
	for name, c := range map[string]struct{ order, becomes string }{
		"AFlowThatStoppedCanBeResumed":    {"resume", "COMPLETED"},
		"AFlowThatStoppedCanBeTerminated": {"terminate", "TERMINATED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s flowStore
			r := newRig(t, good, atEase(&s))
			left(t, s, records.FlowSuspended, "")
			if status, said, _ := r.ask(http.MethodPost, "/f/"+c.order, `{"messageId":"m"}`); status != http.StatusOK {
				t.Fatalf("%s: %d %s", c.order, status, said)
			}
			r.becomes("f", c.becomes)
		})
	}
	t.Run("ARecordWhoseFlowHasEndedEndsToo", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r := newRig(t, good, func(p *transfer.Config) { s = p.Store.(flowStore) })
		record := left(t, s, records.FlowCompleted, "")
		r.await("the record ends", func() bool {
			h, err := s.Load(t.Context(), record.ID)
			return err == nil && h.Record.State == records.Finalized
		})
	})
	t.Run("AFlowThatOnlyAnotherPlaceCanMoveIsTerminatedAnywhere", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r := newRig(t, good, atEase(&s))
		left(t, s, records.FlowStarted, "elsewhere")
		if status, code, _ := r.ask(http.MethodPost, "/f/terminate", `{"messageId":"m"}`); status != http.StatusOK {
			t.Fatalf("terminate: %d %s", status, code)
		}
		r.becomes("f", "TERMINATED")
		r.empty()
	})
	t.Run("ThatItIsToEndIsNotTakenBackByASuspension", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		control := newControl(t)
		r := newRig(t, good, func(p *transfer.Config) {
			atEase(&s)(p)
			p.ControlPlane = control.url
		})
		record := left(t, s, records.FlowStarted, "elsewhere")
		wish := records.FlowWish{State: records.FlowTerminated, By: records.FlowOperator, Reason: "an operator's"}
		if _, err := s.WantFlow(t.Context(), "f", wish); err != nil {
			t.Fatal(err)
		}
		if err := s.Release(t.Context(), record.ID, record.Fence()); err != nil { // as who leaves while it is at it
			t.Fatal(err)
		}
		if status, code, _ := r.ask(http.MethodPost, "/f/suspend", `{"messageId":"m"}`); status != http.StatusConflict {
			t.Errorf("suspend: %d %s, want a conflict with how it has ended", status, code)
		}
		if reason := r.becomes("f", "TERMINATED"); reason != "an operator's" {
			t.Errorf("reason = %q", reason)
		}
		r.await("it is told", func() bool { return control.told("/f/dataflow/errored", "an operator's") == 1 })
	})
	t.Run("ThatItIsToEndIsSeenWhereverItCouldBeMoved", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		r := newRig(t, good, func(p *transfer.Config) { s = p.Store.(flowStore) })
		left(t, s, records.FlowStarted, "elsewhere")
		if _, err := s.WantFlow(t.Context(), "f", records.FlowWish{State: records.FlowTerminated, Reason: "an operator's"}); err != nil {
			t.Fatal(err)
		}
		if reason := r.becomes("f", "TERMINATED"); reason != "an operator's" {
			t.Errorf("reason = %q", reason)
		}
		r.empty()
	})
}

// notes counts how often progress was written.
type notes struct {
	transfer.Store
	n *atomic.Int32
}

func (n notes) NoteProgress(ctx context.Context, all []records.FlowNote) ([]records.FlowNoted, error) {
	defer n.n.Add(int32(len(all))) //nolint:gosec // few
	return n.Store.NoteProgress(ctx, all)
}

// halfway is a source of which the half comes, and then nothing until it is cut
// off; when it is opened again nothing comes at all.
type halfway struct{ opened *atomic.Int32 }

const halfwaySize = 256 << 10

func (h halfway) Open(ctx context.Context, from int64, _ string) (*move.Body, error) {
	if h.opened.Add(1) > 1 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &move.Body{ReadCloser: &half{ctx: ctx, left: halfwaySize / 2}, From: from, Length: halfwaySize, Validator: "v"}, nil
}

type half struct {
	ctx  context.Context
	left int
}

func (h *half) Read(b []byte) (int, error) {
	if h.left == 0 {
		<-h.ctx.Done()
		return 0, context.Cause(h.ctx)
	}
	n := min(len(b), h.left)
	h.left -= n
	return n, nil
}

func (*half) Close() error { return nil }

// TestProgress is about what is known of a flow while it comes no further.
func TestProgress(t *testing.T) {
	t.Parallel()
	t.Run("IsNotForgottenByAnExecutionThatHasNotComeFurther", func(t *testing.T) {
		t.Parallel()
		var opened, noted atomic.Int32
		var s flowStore
		r := newRig(t, func(transfer.Task) (move.Source, error) { return halfway{&opened}, nil }, func(p *transfer.Config) {
			s = p.Store.(flowStore)
			p.Store = notes{p.Store, &noted}
		})
		r.start("f", "d")
		r.await("half of it is there", func() bool {
			h, err := s.LoadFlow(t.Context(), "f")
			return err == nil && h.Flow.Progress.Bytes == halfwaySize/2
		})
		for _, command := range []string{"suspend", "resume"} {
			if status, code, _ := r.ask(http.MethodPost, "/f/"+command, `{"messageId":"m"}`); status != http.StatusOK {
				t.Fatalf("%s: %d %s", command, status, code)
			}
		}
		r.await("it is tried again", func() bool { return opened.Load() == 2 })
		before := noted.Load()
		r.await("progress is written", func() bool { return noted.Load() > before+2 })
		h, err := s.LoadFlow(t.Context(), "f")
		if err != nil || h.Flow.Progress.Bytes != halfwaySize/2 || len(h.Flow.Progress.Checkpoint) == 0 {
			t.Errorf("progress = %d bytes, checkpoint %q, %v", h.Flow.Progress.Bytes, h.Flow.Progress.Checkpoint, err)
		}
	})
	t.Run("OfAFlowThatWaitsForItsPlaceSaysWhatIsWanted", func(t *testing.T) {
		t.Parallel()
		var s flowStore
		var opened atomic.Int32
		r := newRig(t, func(transfer.Task) (move.Source, error) { return counted{held{nil}, &opened}, nil }, func(p *transfer.Config) {
			s, p.Flows = p.Store.(flowStore), 1
		})
		r.start("first", "d")
		r.await("it has the place", func() bool { return opened.Load() == 1 })
		r.start("second", "d")
		if _, err := s.WantFlow(t.Context(), "second", records.FlowWish{State: records.FlowTerminated, Reason: "an operator's"}); err != nil {
			t.Fatal(err)
		}
		r.becomes("second", "TERMINATED")
	})
}
