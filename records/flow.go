package records

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// FlowState is where a data flow stands, in the words of the wire (Data Plane
// Signaling).
type FlowState string

// States of a flow. Completed and Terminated are final.
const (
	FlowPreparing  FlowState = "PREPARING"
	FlowPrepared   FlowState = "PREPARED"
	FlowStarting   FlowState = "STARTING"
	FlowStarted    FlowState = "STARTED"
	FlowSuspended  FlowState = "SUSPENDED"
	FlowCompleted  FlowState = "COMPLETED"
	FlowTerminated FlowState = "TERMINATED"
)

// flowMoves are the legal moves. Started to Started is an execution that
// begins again, after a take-over or an interruption; that, and Prepared to
// Prepared, is also a token more.
var flowMoves = map[FlowState][]FlowState{
	FlowPreparing:  {FlowPrepared, FlowTerminated},
	FlowPrepared:   {FlowPrepared, FlowStarting, FlowStarted, FlowTerminated},
	FlowStarting:   {FlowStarted, FlowSuspended, FlowCompleted, FlowTerminated},
	FlowStarted:    {FlowStarted, FlowSuspended, FlowCompleted, FlowTerminated},
	FlowSuspended:  {FlowStarting, FlowStarted, FlowTerminated},
	FlowCompleted:  {},
	FlowTerminated: {},
}

// CanBecome reports whether a flow may go from s to next.
func (s FlowState) CanBecome(next FlowState) bool { return slices.Contains(flowMoves[s], next) }

// Valid reports whether s is a state at all.
func (s FlowState) Valid() bool { _, ok := flowMoves[s]; return ok }

// Terminal reports whether a flow in s never changes again.
func (s FlowState) Terminal() bool { return s == FlowCompleted || s == FlowTerminated }

// Running reports whether in s the flow's bytes are to move.
func (s FlowState) Running() bool { return s == FlowStarting || s == FlowStarted }

// FlowsInto are the states from which a flow may come to next, in no order.
func FlowsInto(next FlowState) []FlowState {
	var from []FlowState
	for s, to := range flowMoves {
		if slices.Contains(to, next) {
			from = append(from, s)
		}
	}
	return from
}

// Flow is one tracked data flow.
type Flow struct {
	ID          string // the processId: 1 to MaxFlowIDBytes bytes of UTF-8 without control characters
	Record      ID     // of the executions that move its bytes
	Fingerprint Fingerprint
	Moves       bool // while it runs a record of it is in progress, and its owner moves the bytes

	State    FlowState
	Version  int64     // grows by one with every move
	Attempt  Token     // of the last move: who repeats one recognises it
	Wanted   FlowState // where its owner is asked to bring it: suspended, terminated, or nowhere
	WantedBy FlowAsker // who asked for that
	Reason   string    // why it is wanted there, or ended: at most MaxReasonBytes, cut

	Profile string // of the transfer, as asked
	Dataset string
	Message []byte // the message that describes the work; it may hold secrets
	ReplyTo string // where callbacks go
	Tokens  []byte // hashes of the tokens that may read or write its data, 32 bytes each

	Attempts int        // executions begun
	Executor ExecutorID // of the last execution; zero: none yet
	Epoch    int64
	Progress Progress

	CreatedAt time.Time // database clock, as all
	UpdatedAt time.Time
	EndedAt   time.Time // zero: not ended
}

// Progress is how far a flow's bytes have come.
type Progress struct {
	Bytes      int64
	Total      int64  // 0: not known
	SHA256     []byte // of all bytes, once they are all there
	Checkpoint []byte // from where another executor may go on; nil: from the start
}

// Limits of a flow's row.
const (
	MaxFlowIDBytes       = 255
	MaxFlowMessageBytes  = 256 << 10
	MaxCheckpointBytes   = 64 << 10
	MaxFlowTokens        = 8
	maxFlowAddressBytes  = 2048
	maxFlowNameBytes     = 2048
	maxCallbackBodyBytes = 64 << 10
)

// Flows is the part of a store about data flows. As everywhere, a method is one
// decision, and any may return [ErrUnavailable], which is safe to retry with
// the same arguments.
type Flows interface {
	// CreateFlow adds a flow, unless there is one of that id; it returns what
	// stands there, and whether that is by this call, or by an earlier one with
	// the same Attempt.
	CreateFlow(ctx context.Context, f NewFlow) (Flow, bool, error)
	// LoadFlow reads a flow, and the record of its bytes if there is one.
	// ErrNotFound.
	LoadFlow(ctx context.Context, id string) (HeldFlow, error)
	// MoveFlow brings a flow into another state, or begins it again, and puts
	// the callback that this causes into the outbox, in one transaction.
	// ErrFenced: the fence or the version does not hold (any more), the state
	// does not allow it, or the flow is to be terminated and this would take
	// that back; nothing changed. Repeated with the same Attempt
	// after it landed it returns the flow.
	MoveFlow(ctx context.Context, m FlowMove) (Flow, error)
	// WantFlow notes that a running flow is to be suspended or terminated by
	// who moves its bytes. A wish to terminate is not replaced by any other. To
	// want again what is wanted already does not touch the flow.
	// ErrFenced: it does not run (any more).
	WantFlow(ctx context.Context, id string, w FlowWish) (Flow, error)
	// NoteProgress writes how far flows have come, each under its fence, many
	// at once, and returns what is wanted of each, in the order asked. A flow
	// whose fence does not hold is returned as Fenced, and is left alone.
	NoteProgress(ctx context.Context, notes []FlowNote) ([]FlowNoted, error)
	// HoldsFlow demands that the fence holds a running flow of which nothing
	// else is wanted, now. It is asked just before bytes become visible.
	// ErrFenced.
	HoldsFlow(ctx context.Context, id string, f Fence) error
	// StrayFlows reads flows that nobody has touched for idle and that wait for
	// somebody: their bytes should move and no live executor has them in
	// progress, or they are being prepared. In order of id, after the given one,
	// at most limit.
	StrayFlows(ctx context.Context, idle time.Duration, after string, limit int) ([]Flow, error)
	// ListFlows reads a page for an operator, in order of id, without Message,
	// Tokens and Checkpoint.
	ListFlows(ctx context.Context, f FlowFilter) (FlowPage, error)
	// PurgeFlows deletes at most limit flows that ended longer ago than age and
	// have no callback left to deliver. It returns how many.
	PurgeFlows(ctx context.Context, age time.Duration, limit int) (int, error)

	// DueCallbacks takes callbacks whose time has come, at most limit, each
	// flow's oldest only: until patience has passed nobody else gets them.
	DueCallbacks(ctx context.Context, patience time.Duration, limit int) ([]Callback, error)
	// WaitingCallbacks counts callbacks that were not delivered yet, up to most.
	WaitingCallbacks(ctx context.Context, most int) (int, error)
	// CallbackDone removes a callback that was delivered, or given up.
	CallbackDone(ctx context.Context, flow string, version int64) error
	// CallbackFailed lets a callback be due again after a while.
	CallbackFailed(ctx context.Context, flow string, version int64, after time.Duration, reason string) error
}

// NewFlow is a flow as it is first asked for.
type NewFlow struct {
	ID          string
	Record      ID
	Fingerprint Fingerprint
	Moves       bool
	State       FlowState
	Attempt     Token // the same for every retry of this call
	Profile     string
	Dataset     string
	Message     []byte
	ReplyTo     string
	Tokens      []byte
	Callback    *NewCallback // nil: none
}

// HeldFlow is a flow, and who has the record of its bytes.
type HeldFlow struct {
	Flow     Flow
	State    State // of the record; "": there is none
	Fence    Fence // of the record
	URL      string
	Callback *Callback // the oldest that waits to be delivered; nil: none
}

// InProgress reports whether somebody has the flow's record in progress.
func (h HeldFlow) InProgress() bool { return h.State == InProgress }

// FlowMove is one move of a flow. With a Fence it is its owner's, who has the
// record in progress; without, nobody may have it, and the flow must stand at
// Version.
type FlowMove struct {
	ID      string
	Attempt Token // the same for every retry of this move
	Fence   Fence // zero: no record of the flow is in progress
	Version int64 // without a fence

	To     FlowState
	Moves  bool // from here on a record of it is in progress while it runs
	Begin  bool // an execution begins: it is counted, and its executor and epoch are noted
	Reason string

	Message  []byte       // nil: as it was
	ReplyTo  string       // empty: as it was
	Tokens   []byte       // nil: as they were; empty: none any more
	Progress *Progress    // nil: as it was
	Callback *NewCallback // nil: none
}

// FlowWish is what somebody wants of a running flow.
type FlowWish struct {
	State  FlowState // suspended or terminated
	By     FlowAsker
	Reason string
}

// FlowAsker is who may want something of a flow. The control plane is not told
// what it has asked for itself.
type FlowAsker string

// Askers.
const (
	FlowControlPlane FlowAsker = ""
	FlowOperator     FlowAsker = "operator"
)

// FlowNote is how far one flow has come.
type FlowNote struct {
	ID       string
	Fence    Fence
	Progress Progress
}

// FlowNoted is what became of a note.
type FlowNoted struct {
	Fenced bool      // the fence holds no running flow; nothing was written
	Wanted FlowState // what somebody wants of it; "": nothing
}

// NewCallback is word to be sent to the control plane about a move.
type NewCallback struct {
	Event string // prepared, started, completed or errored
	URL   string
	Body  []byte
}

// Callback is a message of the outbox. Flow and Version name it.
type Callback struct {
	Flow    string
	Version int64 // of the flow, by the move that caused it
	NewCallback
	Sealed    bool // its body cannot be opened here, and is not here
	Tries     int  // so far, the one for which it was taken included
	Reason    string
	CreatedAt time.Time
}

// FlowFilter selects flows. Zero fields do not filter.
type FlowFilter struct {
	State FlowState
	After string // exclusive; the Next of the page before
	Limit int    // rows in a page, 1 to 1000
}

// FlowPage is a part of a listing.
type FlowPage struct {
	Flows []Flow
	Next  string
	More  bool
}

// ValidFlowID reports whether a flow may be called id.
func ValidFlowID(id string) bool {
	if id == "" || len(id) > MaxFlowIDBytes || !utf8.ValidString(id) {
		return false
	}
	for _, r := range id {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}

// Validate reports every reason why the flow could never be stored.
func (f NewFlow) Validate() error {
	var faults faults
	faults.check(ValidFlowID(f.ID), "flow id", "want 1 to 255 bytes of UTF-8 without control characters")
	faults.check(f.Record != ID{}, "record id", "missing")
	faults.check(f.Attempt != Token{}, "attempt", "missing")
	faults.check(f.State.Valid() && !f.State.Terminal(), "state", "want one in which a flow can begin")
	faults.check(len(f.Message) <= MaxFlowMessageBytes, "message", "over 256 KiB")
	faults.check(len(f.Profile) <= maxFlowNameBytes && cleanText(f.Profile), "profile", "want at most 2,048 bytes of UTF-8 without NUL")
	faults.check(len(f.Dataset) <= maxFlowNameBytes && cleanText(f.Dataset), "dataset", "want at most 2,048 bytes of UTF-8 without NUL")
	faults.checkFlowParts(f.ReplyTo, f.Tokens, f.Callback)
	return faults.join()
}

// Validate reports every reason why the move could never land.
func (m FlowMove) Validate() error {
	var faults faults
	faults.check(ValidFlowID(m.ID), "flow id", "want 1 to 255 bytes of UTF-8 without control characters")
	faults.check(m.Attempt != Token{}, "attempt", "missing")
	faults.check(m.To.Valid(), "state", "unknown state")
	faults.check(!m.Begin || m.Fence != Fence{}, "begin", "wants a fence")
	faults.check(len(m.Message) <= MaxFlowMessageBytes, "message", "over 256 KiB")
	if m.Progress != nil {
		faults.check(m.Progress.valid(), "progress", "negative, or a checkpoint over 64 KiB")
	}
	faults.checkFlowParts(m.ReplyTo, m.Tokens, m.Callback)
	return faults.join()
}

func (p Progress) valid() bool {
	return p.Bytes >= 0 && p.Total >= 0 && len(p.Checkpoint) <= MaxCheckpointBytes && (len(p.SHA256) == 0 || len(p.SHA256) == 32)
}

func (f *faults) checkFlowParts(replyTo string, tokens []byte, c *NewCallback) {
	f.check(len(replyTo) <= maxFlowAddressBytes && cleanText(replyTo), "callback address", "want at most 2,048 bytes of UTF-8 without NUL")
	f.check(len(tokens)%32 == 0 && len(tokens) <= 32*MaxFlowTokens, "tokens", "want at most 8 hashes of 32 bytes")
	if c != nil {
		f.check(len(c.URL) <= 2*maxFlowAddressBytes && cleanText(c.URL) && cleanText(c.Event), "callback", "not text")
		f.check(len(c.Body) <= maxCallbackBodyBytes, "callback", "over 64 KiB")
	}
}

// Validate reports every reason why the note could never be written.
func (n FlowNote) Validate() error {
	var faults faults
	faults.check(ValidFlowID(n.ID), "flow id", "want 1 to 255 bytes of UTF-8 without control characters")
	faults.check(n.Progress.valid(), "progress", "negative, or a checkpoint over 64 KiB")
	return faults.join()
}

// Validate accepts a limit of 1 to 1000 and a known state.
func (f FlowFilter) Validate() error {
	var faults faults
	faults.check(f.Limit >= 1 && f.Limit <= 1000, "limit", "want 1 to 1000")
	faults.check(f.State == "" || f.State.Valid(), "state", "unknown state")
	return faults.join()
}

// FlowReason is s as a flow's row takes it: UTF-8 without NUL, cut to
// MaxReasonBytes.
func FlowReason(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > MaxReasonBytes {
		s = strings.ToValidUTF8(s[:MaxReasonBytes], "") // it may have cut a character in two
	}
	return s
}
