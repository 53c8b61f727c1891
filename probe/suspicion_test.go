package probe

import (
	"testing"
	"time"
)

// TestSuspicion holds what is to be done next, for what is known.
func TestSuspicion(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	budget := Budget{}.withDefaults()
	for _, row := range []struct {
		name string
		s    suspicion
		want step
	}{
		{"AtFirstAWitnessIsSought", suspicion{last: Down}, askWitness},
		{"ThenTheAnswersAreAwaited", suspicion{last: Down, hearing: asking}, wait},
		{"ASignedAnswerRefutes", suspicion{asked: true, last: Running, alive: true, hearing: asking}, refute},
		{"ASignatureThroughAProxyRefutes", suspicion{asked: true, last: Unknown, alive: true, hearing: asking}, refute},
		{"AReplacementRefutes", suspicion{asked: true, last: Replaced, hearing: asking}, refute},
		{"AReplacementSeenByTheWitnessRefutes", suspicion{asked: true, last: Silent, hearing: heard, saw: Replaced}, refute},
		{"AWitnessWithASignedAnswerDrops", suspicion{asked: true, last: Down, hearing: heard, saw: Running}, drop},
		{"AWitnessWithASignatureThroughAProxyDrops", suspicion{asked: true, last: Down, hearing: heard, saw: Unknown, sawAlive: true}, drop},
		{"AWitnessDropsEvenWhatIsDown", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: NotRunning, sawAlive: true}, drop},

		{"BothRefusedForLongEnough", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: Down}, confirmDown},
		{"RefusedNotForLongEnough", suspicion{attested: true, asked: true, now: 299 * ms, foundAt: 299 * ms, last: Down, hearing: heard, saw: Down}, wait},
		{"TheRunOfRefusalsCounts", suspicion{attested: true, asked: true, now: 400 * ms, foundAt: 400 * ms, downSince: 101 * ms, last: Down, hearing: heard, saw: Down}, wait},
		{"NotAttested", suspicion{asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: Down}, wait},
		{"TheWitnessSawOnlySilence", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: Silent}, wait},
		{"TheWitnessKnowsNothing", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: Unknown}, wait},
		{"TheWitnessMetAStranger", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: heard, saw: Stranger}, wait},
		{"TheWitnessIsStillAsked", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: asking}, wait},
		{"NoWitnessIsLeft", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: exhausted}, wait},
		{"NoPeerIsAlive", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Down, hearing: noPeers}, wait},
		{"TheObserverSawOnlySilence", suspicion{attested: true, asked: true, now: 300 * ms, foundAt: 300 * ms, last: Silent, hearing: heard, saw: Down}, wait},
		{"AnOldTestimonyIsNoNews", suspicion{attested: true, asked: true, now: 3000 * ms, foundAt: 3000 * ms, downSince: 2500 * ms, last: Down, hearing: heard, saw: Down}, askWitness},
		{"AnOldTestimonyMayChange", suspicion{attested: true, asked: true, now: 3000 * ms, foundAt: 3000 * ms, last: Down, hearing: heard, saw: Unknown}, askWitness},

		{"ABrokenWatchAloneIsNothing", suspicion{attested: true, broke: true, last: Unknown, hearing: heard, saw: Down}, wait},
		{"ABrokenWatchAndTwoRefusals", suspicion{attested: true, broke: true, asked: true, last: Down, hearing: heard, saw: Down}, confirmDown},
		{"ABrokenWatchAndOneRefusal", suspicion{attested: true, broke: true, asked: true, last: Down, hearing: heard, saw: Silent}, wait},
		{"ABrokenWatchAndSilence", suspicion{attested: true, broke: true, asked: true, last: Silent, hearing: heard, saw: Down}, wait},
		{"ABrokenWatchOfAnUnattested", suspicion{broke: true, asked: true, last: Down, hearing: heard, saw: Down}, wait},

		{"SilenceNotForLongEnough", suspicion{asked: true, now: 4999 * ms, foundAt: 4999 * ms, last: Silent, hearing: heard, saw: Silent}, wait},
		{"SilenceAndAnOldTestimony", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: heard, heardAt: 4999 * ms, saw: Silent}, askWitness},
		{"SilenceAndAWitnessOfNow", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: heard, heardAt: 5000 * ms, saw: Silent}, confirmSilent},
		{"SilenceAndAWitnessThatKnowsNothing", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: heard, heardAt: 5000 * ms, saw: Unknown}, confirmSilent},
		{"SilenceAndAWitnessStillAsked", suspicion{asked: true, now: 9000 * ms, foundAt: 9000 * ms, last: Silent, hearing: asking, heardAt: 5000 * ms}, wait},
		{"TheLastWitnessIsAskedAtOnce", suspicion{asked: true, now: 5000 * ms, foundAt: 4000 * ms, last: Silent, hearing: heard, saw: Silent}, askWitness},
		{"TheLastQuestionIsStillUnderWay", suspicion{asked: true, now: 6000 * ms, foundAt: 4000 * ms, last: Silent, hearing: heard, heardAt: 5000 * ms, saw: Silent}, wait},
		{"NoPeersAndTheLastQuestionIsStillUnderWay", suspicion{asked: true, now: 6000 * ms, foundAt: 4000 * ms, last: Silent, hearing: noPeers, heardAt: 5000 * ms}, wait},
		{"SilenceAndNoWitnessLeftYet", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: exhausted}, askWitness},
		{"SilenceOfAllPeersToo", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: exhausted, heardAt: 5000 * ms}, abstain},
		{"NoPeersAtFirst", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: noPeers}, askWitness},
		{"NoPeersNow", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Silent, hearing: noPeers, heardAt: 5000 * ms}, confirmSilent},
		{"UnknownLastsAsLong", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Unknown, hearing: heard, heardAt: 5000 * ms, saw: Unknown}, confirmSilent},
		{"StrangersLastAsLong", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Stranger, hearing: heard, heardAt: 5000 * ms, saw: Stranger}, confirmSilent},
		{"RefusalsWithoutAttestationLastAsLong", suspicion{asked: true, now: 5000 * ms, foundAt: 5000 * ms, last: Down, hearing: heard, heardAt: 5000 * ms, saw: Down}, confirmSilent},
	} {
		if got := row.s.next(budget); got != row.want {
			t.Errorf("%s: step %d, want %d", row.name, got, row.want)
		}
	}
}

// TestSuspicionRunOfRefusals: anything but a refusal begins a new run.
func TestSuspicionRunOfRefusals(t *testing.T) {
	t.Parallel()
	s := suspicion{last: Unknown}
	for _, row := range []struct {
		at   time.Duration
		v    Verdict
		want time.Duration
	}{{10, Down, 10}, {20, Down, 10}, {30, Silent, 10}, {40, Down, 40}, {50, Down, 40}} {
		s.now = row.at
		s.observe(Observation{Verdict: row.v})
		if s.downSince != row.want || s.foundAt != row.at || !s.asked {
			t.Errorf("at %d: %+v", row.at, s)
		}
	}
	s = suspicion{last: Down, now: 10} // the first failure was a refusal: it began the run
	if s.observe(Observation{Verdict: Down}); s.downSince != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSuspicionPause(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	b := Budget{}.withDefaults()
	for _, row := range []struct {
		s             suspicion
		backoff, want time.Duration
	}{
		{suspicion{now: 10 * ms}, 40 * ms, 40 * ms},
		{suspicion{now: 290 * ms}, 40 * ms, 10 * ms},                      // the end of the refusals' window
		{suspicion{now: 390 * ms, downSince: 100 * ms}, 40 * ms, 10 * ms}, // that began later
		{suspicion{now: 300 * ms}, 40 * ms, 40 * ms},                      // it is over
		{suspicion{now: 4900 * ms}, 1000 * ms, 100 * ms},                  // the end of the budget
		{suspicion{now: 5200 * ms}, 1000 * ms, 1000 * ms},                 // it is over
		{suspicion{now: 10 * ms, broke: true}, 500 * ms, 500 * ms},        // no window
	} {
		if got := row.s.pause(b, row.backoff); got != row.want {
			t.Errorf("%+v: %v, want %v", row.s, got, row.want)
		}
	}
}
