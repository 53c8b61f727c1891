package takeover

// A flaw is one way to break the protocol. Each must be found out: it shows
// that the model can see what the rule is for.
type flaw uint8

const (
	noFlaw flaw = iota
	noSelfFence
	deadlineFromReply
	fenceIgnoresBeat
	fencesNotQueued
	fencedRevived
	completionByStateOnly
	takerUntested
	beatsStopAtDrain
	entryAfterReserve
	unknownUnclaimed
	settleIgnored
	settleJudgedByAnswer
	registrationRepeatTrusted
	outageForgotten
	evidenceOutlivesEpoch
	epochKept
	observersPolicy
	sentAndReleased
	drainForgotten
	poisonRetried
)

// broken is a flaw, where it is looked for, and the id of the property that
// must fall.
type broken struct {
	name    string
	flaw    flaw
	setting setting
	falls   string
}

var brokens = []broken{
	{"no self-fence", noSelfFence, leased, "exclusive"},
	{"deadline counted from the reply", deadlineFromReply, leased, "exclusive"},
	{"fence without the beat compare", fenceIgnoresBeat, probed.with("", pausing), "I4 probe"},
	{"fences not queued, so two nodes fence each other", fencesNotQueued, probed.with("", feuding), "I4 observer"},
	{"fenced executor revived", fencedRevived, leased, "I3"},
	{"completion guarded by state only", completionByStateOnly, leased, "I1"},
	{"take-over without testing the taker", takerUntested, leased.with("", observerLeaving), "claim"},
	{"heartbeats stop at drain", beatsStopAtDrain, leased.with("", ownerLeaving), "I12"},
	{"running set filled after the reserve", entryAfterReserve, leased.with("", keyNew), "exclusive"},
	{"unknown reconciled without a claim", unknownUnclaimed, leased.with("", outcomeUnknown), "once"},
	{"not-applied read before the predecessor's request settled", settleIgnored, probed.with("", ownerDead), "once"},

	{"not-applied asked for too early, and believed when the answer comes", settleJudgedByAnswer, probed.with("", ownerDead), "once"},
	{"trust counted from a registration's repeat", registrationRepeatTrusted, leased.with("", registering), "exclusive"},
	{"work started without looking at the lease", noSelfFence, leased, "I7"},
	{"evidence about an epoch believed of the next one", evidenceOutlivesEpoch, leased.with("", keyNew), "I5"},
	{"take-over that keeps the epoch", epochKept, leased, "I2"},
	{"the observer's policy asked instead of the suspect's", observersPolicy, leased.with("", crashing), "I4 lease"},
	{"released though the request was sent", sentAndReleased, leased.with("", outcomesUncertain), "release"},
	{"claims go on after the drain began", drainForgotten, leased.with("", observerLeaving), "drain"},
	{"one take-over too many", poisonRetried, leased.with("", poisonous), "poison"},
	{"an observer that has just come through an outage of the store", outageForgotten, leased.with("", fleetHealthy), "I12"},

	// Not a flaw but a limit: the guard of policy probe is asked when work
	// begins. What the work begins later has only the lease's context.
	{"policy probe, and work that comes to its effect late", noFlaw, probed.with("", toilingLong), "exclusive"},
}
