package api

import (
	"testing"

	"github.com/probate-dev/probate/takeover"
)

func TestJudgeStatus(t *testing.T) {
	t.Parallel()
	const (
		answer  = takeover.Completed
		frees   = takeover.Untouched
		unknown = takeover.Uncertain
	)
	for _, c := range []struct {
		status     int
		retryAfter bool
		want       [3]takeover.CompletionKind // by policy: unknown, store, release
	}{
		{200, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{201, true, [3]takeover.CompletionKind{answer, answer, answer}},
		{204, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{206, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{302, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{304, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{400, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{401, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{403, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{404, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{407, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{408, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{409, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{419, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{422, false, [3]takeover.CompletionKind{answer, answer, answer}},
		{425, false, [3]takeover.CompletionKind{frees, frees, frees}},
		{429, true, [3]takeover.CompletionKind{frees, frees, frees}},
		{500, false, [3]takeover.CompletionKind{unknown, answer, frees}},
		{500, true, [3]takeover.CompletionKind{unknown, answer, frees}},
		{502, false, [3]takeover.CompletionKind{unknown, answer, frees}},
		{503, false, [3]takeover.CompletionKind{unknown, answer, frees}},
		{503, true, [3]takeover.CompletionKind{frees, frees, frees}},
		{504, false, [3]takeover.CompletionKind{unknown, answer, frees}},
		{599, false, [3]takeover.CompletionKind{unknown, answer, frees}},
	} {
		for i, policy := range []ServerError{ServerErrorUnknown, ServerErrorStore, ServerErrorRelease} {
			if got := judgeStatus(c.status, c.retryAfter, policy); got != c.want[i] {
				t.Errorf("%d, Retry-After %t, policy %s: %d, want %d", c.status, c.retryAfter, policy, got, c.want[i])
			}
		}
	}
}
