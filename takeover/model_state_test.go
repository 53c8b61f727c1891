package takeover

import (
	"time"

	"github.com/probate-dev/probate/records"
)

// The model: up to three processes, the store, a downstream service and the
// network between them, small enough that every order of events can be tried.
//
// What a process decides comes from the package itself: [Decide], [Recover]
// and [Trust]. What the store decides is written once more in
// model_store_test.go, after protocol.md §4. Everything between the two is the
// adversary's: a statement may wait as long as it likes before the store takes
// it, and its reply before the process reads it; a process may stand still
// between any two steps, and act on a read that is long out of date.
//
// Reading order: model_state (what there is), model_store (the statements),
// model_owner (lease, execution, recovery), model_course (a duplicate's way),
// model_moves (time, faults, the service), model_properties (what must hold),
// model_settings and model_flaws (what is explored), model_essence (when two
// moments are the same), modelcheck (the search), model_futures (a test that
// an essence loses nothing).
//
// Not in the model: clocks that step, a new boot of a fenced process or in an
// old one's slot, operators, expiry and purge, the choice of a witness, and the
// stored response.

// A modelState is everything at one moment. It is comparable, and holds only
// bytes, so that it is its own key in the set of states already seen.
type modelState struct {
	store     modelStore
	processes [3]modelProcess
	service   modelService
	left      modelFaults

	signed uint8 // epochs, a bit each, whose holder has signed that it does not run them
}

// A tick is a point in time, or a span of it: one second of the protocol's.
type tick int8

func elapsedTicks(since tick) time.Duration { return (present - since).duration() }

func (t tick) duration() time.Duration { return time.Duration(t) * time.Second }

// who names a process and its executor.
type who uint8

const (
	nodeA who = iota
	nodeB
	nodeC
	nobody
)

func (w who) String() string { return [...]string{"A", "B", "C", "-"}[w] }

// modelStore is what is stored, and the store's clock, which everybody shares.
type modelStore struct {
	down      bool
	executors [3]modelExecutor
	record    modelRecord
}

type modelExecutor struct {
	state       rowState
	beat        int8
	heartbeatAt tick
	leaseSince  tick
	fencedAt    tick
}

type rowState uint8

const (
	noRow rowState = iota
	rowActive
	rowDraining
	rowGone
	rowFenced
)

// stored is the state as the package knows it.
func (s rowState) stored() records.ExecutorState {
	return [...]records.ExecutorState{"", records.Active, records.Draining, records.Gone, records.Fenced}[s]
}

func (s rowState) live() bool { return s == rowActive || s == rowDraining }

type modelRecord struct {
	state     recordState
	executor  who
	epoch     int8
	attempt   int8 // the token of the reserve that claimed it; 0: claimed otherwise
	takeovers int8
}

type recordState uint8

const (
	noRecord recordState = iota
	recInProgress
	recFinalized
	recUnknown
	recReleased
)

func (s recordState) stored() records.State {
	return [...]records.State{"", records.InProgress, records.Finalized, records.Unknown, records.Released}[s]
}

// modelProcess is the memory of one process.
type modelProcess struct {
	life     life
	draining bool // told to leave
	leaving  bool // and everything it had is done

	// Its lease: when it believes the last good heartbeat was sent, and when it
	// truly was.
	sent, trulySent tick
	ended           bool // told that it was fenced
	beats           int8 // of its own, as last acknowledged
	beating         beating
	beatSent        tick
	unregistered    bool // its registration has landed, the reply is lost

	entry    bool // the record is in its running set
	reserves int8 // the token of its last reserve
	stray    int8 // the token of a copy of a reserve that is still on its way; 0: none
	call     modelCall
	course   modelCourse
	tenure   modelTenure
}

type life uint8

const (
	alive life = iota
	paused
	dead
)

// beating is where a heartbeat under way stands.
type beating uint8

const (
	notBeating beating = iota
	beatOnItsWay
	beatLanded
	beatRefused
)

// modelCall is the one statement a flight has under way. Its arguments are the
// flight's knowledge, which does not change meanwhile.
type modelCall struct {
	kind  callKind
	stage callStage
	reply callReply
}

type callKind uint8

const (
	noCall callKind = iota
	callReserve
	callTakeOver
	callTakeOverSigned
	callClaimUnknown
	callFenceProbed
	callFenceStale
	callFinalize
	callRelease
	callMarkUnknown
)

func (k callKind) String() string {
	return [...]string{
		"nothing", "reserve", "take-over", "take-over (signed)", "claim of the unknown",
		"fence (probed)", "fence (stale)", "finalize", "release", "mark unknown",
	}[k]
}

type callStage uint8

const (
	onItsWay callStage = iota
	looked             // only fences that do not queue: evaluated, not yet committed
	decided            // by the store; the reply is on its way
)

type callReply uint8

const (
	refused callReply = iota // the fence of the record does not hold, or the suspect is to live
	notActive
	granted
)

// modelCourse is a course without its flight: what is known of the record.
type modelCourse struct {
	at    courseStage
	held  modelHeld
	trail modelTrail
}

type courseStage uint8

const (
	notBegun courseStage = iota
	looking              // Decide says what is next
	holding              // the record; Recover or the work says what is next
	answered
)

// modelHeld is what one read of the store said.
type modelHeld struct {
	record   modelRecord
	executor modelExecutor
	stale    bool
}

// modelTrail is what asking the holder has shown.
type modelTrail struct {
	executor     who
	epoch        int8
	evidence     uint8 // an Evidence
	reread       bool
	staleRefused bool
	notRunning   tick // when it signed that; 0: it did not

	suspected  bool // there is a case, and what follows is about it
	confirming bool
	beat       int8 // the suspect's, as noted when the confirmation began
	ownBeat    int8 // the observer's own, at that time
	needs      int8 // how many of its own beats must have landed since
	since      tick
	refuted    bool // a beat of the suspect has landed since
}

// modelTenure is a hold on the record.
type modelTenure struct {
	stage     tenureStage
	epoch     int8
	takeovers int8
	first     bool // a first claim
	work      bool // the work is at hand
	endedAt   tick // when the predecessor can last have begun a request
	begunAt   tick // when the check before the effect was passed

	asked    bool
	finding  uint8 // a FindingKind
	settling bool  // when the reconciler was asked
	late     bool
}

type tenureStage uint8

const (
	noTenure  tenureStage = iota
	toRecover             // Recover says what is next
	toStart               // waits until an effect may begin
	toWork                // the work runs, its effect is to come
	toSend                // the check is passed, nothing is sent
	toFinish              // the request is sent, its answer is awaited
	toSettle              // a last write is under way
)

// modelService is what the effects are asked of.
type modelService struct {
	requests [4]modelRequest
	fence    int8 // the largest epoch presented, if it knows fences
	applied  int8
}

type modelRequest struct {
	stage  requestStage
	by     who
	epoch  int8
	sentAt tick
}

type requestStage uint8

const (
	noRequest requestStage = iota
	reqOnWire
	reqWorking
	reqApplied
	reqRejected // for its fence, or lost on the wire
)

// modelFaults is how many faults may still happen.
type modelFaults struct {
	pauses, crashes, losses, outages int8
}
