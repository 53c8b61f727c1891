package takeover

import "github.com/probate-dev/probate/records"

// A setting is one small world to explore.
type setting struct {
	name                              string
	nodes                             int
	policy                            records.Policy
	ttl, margin, budget, settle, wire tick
	gap                               tick // longest pause between a check and its effect
	epochs                            int8 // and the record's epoch here
	limit                             int  // take-overs allowed

	asks     [3]bool // who is asked for the record
	work     [3]bool // who has the work at hand
	returns  [3]bool // who goes on as a duplicate when it was overtaken
	steady   [3]bool // whose heartbeats come without fail
	leaves   [3]bool // who is told to leave
	faulty   [3]bool // who may stand still and die
	handsOff [3]bool // whose client has hung up

	faultsAllowed modelFaults

	timely        bool // pauses between a check and its effect are at most gap
	bounded       bool // requests reach the service within wire
	lossy         bool // probes fail though the suspect lives
	refusing      bool // and may even be refused, as by a firewall
	healthy       bool // everybody beats in time
	fencing       bool // the service refuses old fences
	noReconciler  bool
	fickle        bool // work may send nothing, and may not know what came of it
	slow          bool // work comes to its effect late
	deadlines     bool // reconciling may run out of time
	strays        bool // a reserve's first copy may land after its second
	registers     bool // A does not know yet that it is registered
	startsHeld    bool // A holds the record at epoch 1, and its work is to start
	startsDead    bool // and it has died, its request still on the wire
	startsUnknown bool // the record's outcome is unknown, A's at epoch 1
	feud          bool // A and B suspect each other for another record
}

// model is a setting, explored with or without a flaw.
type model struct {
	setting
	flaw  flaw
	taken *taken
}

// taken counts what the decisions came to, so that no test passes for want of
// anything happening.
type taken struct {
	actions    [Pause + 1]int
	recoveries [Free + 1]int
}

var (
	onlyA  = [3]bool{true}
	onlyB  = [3]bool{nodeB: true}
	aAndB  = [3]bool{true, true}
	bAndC  = [3]bool{false, true, true}
	all    = [3]bool{true, true, true}
	leased = setting{
		nodes: 2, policy: records.PolicyLease, ttl: 4, margin: 2, budget: 3, settle: 2, wire: 1, gap: 1,
		epochs: 3, limit: 1,
		asks: aAndB, work: all, steady: onlyB, faulty: onlyA, startsHeld: true, timely: true, bounded: true,
	}
	probed = setting{
		nodes: 2, policy: records.PolicyProbe, ttl: 3, margin: 1, budget: 3, settle: 2, wire: 1, gap: 1,
		epochs: 3, limit: 1,
		asks: aAndB, work: all, steady: onlyB, faulty: onlyA, startsHeld: true, timely: true, bounded: true,
	}
)

// with returns the setting, changed.
func (s setting) with(name string, change func(*setting)) setting {
	s.name = name
	change(&s)
	return s
}

// What a setting may add.
func pausing(s *setting)  { s.faultsAllowed.pauses = 1 }
func crashing(s *setting) { s.faultsAllowed.crashes = 1 }

// toiling: and its work takes its time before the effect.
func toiling(s *setting) {
	pausing(s)
	s.slow = true
}

// toilingLong: under a lease that is longer than the probe budget.
func toilingLong(s *setting) {
	toiling(s)
	s.ttl = 5
}

func losing(s *setting) {
	s.ttl = 3
	s.faultsAllowed.crashes, s.faultsAllowed.losses = 1, 1
}

// outcomesUncertain: the work may not know what it did, and a request may be
// lost.
func outcomesUncertain(s *setting) {
	s.ttl, s.fickle = 3, true
	s.faultsAllowed.losses = 1
}

func nobodyTells(s *setting) { s.fickle, s.noReconciler = true, true }

// ownerReturning: an owner that was overtaken asks like everybody else.
func ownerReturning(s *setting) {
	s.ttl, s.returns = 3, onlyA
}

func handsOff(s *setting) { s.handsOff = onlyB }

// ownerDead: two observers find an owner that died with a request on the wire.
func ownerDead(s *setting) {
	s.nodes, s.steady, s.asks = 3, bAndC, bAndC
	s.startsDead, s.deadlines = true, true
}

// poisonous: the record has had all its take-overs.
func poisonous(s *setting) {
	ownerDead(s)
	s.limit, s.faultsAllowed.losses = 0, 1
}

// observerLeaving: one of them is told to leave.
func observerLeaving(s *setting) {
	ownerDead(s)
	s.leaves = onlyB
}

// cutOff: probes fail though the owner lives, requests take any time, pauses
// are any length. Only a service that knows fences is safe then.
func cutOff(s *setting) {
	s.margin, s.budget, s.settle = 2, 2, 0
	s.lossy, s.timely, s.bounded, s.fencing = true, false, false, true
}

// feuding: two nodes cannot reach each other, and each has a record that the
// other wants.
func feuding(s *setting) {
	s.nodes, s.steady = 3, all
	s.feud, s.refusing, s.startsHeld = true, true, false
}

// keyNew: two nodes are asked for a new key.
func keyNew(s *setting) { s.ttl, s.startsHeld, s.strays = 3, false, true }

// outcomeUnknown: two nodes come upon a record of unknown outcome.
func outcomeUnknown(s *setting) {
	s.nodes, s.steady, s.asks, s.faulty = 3, all, bAndC, onlyB
	s.startsHeld, s.startsUnknown = false, true
	s.faultsAllowed = modelFaults{losses: 1, crashes: 1}
}

// fleetHealthy: everybody beats in time, the store alone may fail.
func fleetHealthy(s *setting) {
	s.ttl, s.healthy, s.steady = 3, true, [3]bool{}
	s.faultsAllowed.outages = 1
}

// ownerLeaving: and its owner is told to leave.
func ownerLeaving(s *setting) {
	s.ttl, s.healthy, s.leaves = 3, true, onlyA
	s.faultsAllowed.outages = 1
}

// registering: the owner's registration has landed, its reply is lost.
func registering(s *setting) { s.registers, s.startsHeld = true, false }

// settings are what the protocol is explored in, without a flaw.
var settings = []setting{
	leased.with("lease, the owner stands still", toiling),
	leased.with("lease, the owner dies, replies are lost", losing),
	leased.with("lease, outcomes are uncertain", outcomesUncertain),
	leased.with("lease, nobody can tell", nobodyTells),
	leased.with("lease, an overtaken owner goes on as a duplicate", ownerReturning),
	leased.with("lease, the client hangs up", handsOff),
	leased.with("lease, two observers of a dead owner", ownerDead),
	leased.with("lease, the record is poison", poisonous),
	leased.with("lease, one of two observers leaves", observerLeaving),
	leased.with("lease, the key is new", keyNew),
	leased.with("lease, the outcome is unknown", outcomeUnknown),
	leased.with("lease, the owner registers", registering),
	leased.with("lease, a healthy fleet", fleetHealthy),
	leased.with("lease, a healthy owner leaves", ownerLeaving),
	probed.with("probe, the owner stands still", pausing),
	probed.with("probe, the owner dies", crashing),
	probed.with("probe, two observers of a dead owner", ownerDead),
	probed.with("probe, one of two observers leaves", observerLeaving),
	probed.with("probe, the owner is cut off", cutOff),
	probed.with("probe, two nodes are cut off from each other", feuding),
	probed.with("probe, a healthy owner leaves", ownerLeaving),
}
