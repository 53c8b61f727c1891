package probe

import (
	"fmt"
	"time"

	"github.com/probate-dev/probate/records"
)

// Verdict is what one question to an executor may honestly say.
type Verdict int

const (
	// Unknown: something answered that is not our handler, or nothing can be
	// said: a redirect, an error status, a bad signature, a failed TLS
	// handshake, a cut or oversized body, a failing name server, a proxy in
	// between, an address that may not be dialled.
	Unknown Verdict = iota
	// Running: the executor signed that it is running the record.
	Running
	// NotRunning: the executor signed that it is not running the record.
	NotRunning
	// Replaced: a newer boot of the executor's slot signed the answer. Its
	// registration fenced the one that was asked.
	Replaced
	// Stranger: some other executor of the cluster signed the answer. The
	// address was reused, or a balancer stands in front. It proves nothing.
	Stranger
	// Down: the connection was refused, or reset before a byte of an answer.
	Down
	// Silent: nothing came back in time, the host is unreachable, or its name
	// is gone.
	Silent
)

var verdictNames = [...]string{
	Unknown:    "unknown",
	Running:    "running",
	NotRunning: "not_running",
	Replaced:   "replaced",
	Stranger:   "stranger",
	Down:       "down",
	Silent:     "silent",
}

// String is the verdict in snake_case, as it stands in metrics and messages.
func (v Verdict) String() string {
	if v < 0 || int(v) >= len(verdictNames) {
		return fmt.Sprintf("verdict(%d)", int(v))
	}
	return verdictNames[v]
}

// MarshalText is String, for structured logs.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Signed reports whether the asked executor itself answered about the record.
func (v Verdict) Signed() bool { return v == Running || v == NotRunning }

// parseVerdict reads what String wrote.
func parseVerdict(s string) (Verdict, bool) {
	for v, name := range verdictNames {
		if s == name {
			return Verdict(v), true
		}
	}
	return Unknown, false
}

// Observation is what came of one question.
type Observation struct {
	Verdict Verdict
	// Err says why there is no better verdict. It is nil if, and only if, the
	// asked executor signed an answer about the record.
	Err error

	// Asked is the executor that the question was meant for.
	Asked records.ExecutorID
	// Signer is whose signature was verified; zero: nobody's.
	Signer records.ExecutorID
	// Claimed is who the answer says has signed it, when its key is not
	// known here. It is unproven: at most a reason to read the list of
	// executors again and to repeat the question.
	Claimed records.ExecutorID

	// Broken: a watch that was under way ended because its connection did.
	// Alone it is no verdict.
	Broken bool
	// Cancelled: the caller's own context ended first. Err is its cause, and
	// nothing was learned about the executor.
	Cancelled bool

	Elapsed time.Duration // from the question to the verdict
}

// Alive reports whether the asked executor proved that it is alive, whatever
// the verdict: a signed answer that came through a proxy is Unknown, and yet
// somebody signed it.
func (o Observation) Alive() bool {
	return o.Signer != records.ExecutorID{} && o.Signer == o.Asked
}

// Testimony is what a witness said about a suspect.
type Testimony struct {
	// Heard is the observation of the witness itself. The rest counts only
	// if Heard.Alive().
	Heard Observation
	// Saw is the verdict that the witness signed.
	Saw Verdict
	// SuspectAlive: the witness has a signed answer from the suspect.
	SuspectAlive bool
}
