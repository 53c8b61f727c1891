package takeover

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/probate-dev/probate/records"
)

// Config is how a node takes part in the fleet. A zero duration or count means
// its default; what has no default says so.
type Config struct {
	Slot   string         // the stable place this process runs in; no default
	URL    string         // where peers reach this node's probe endpoint: scheme, host, port; no default
	Policy records.Policy // what may fence this executor; default probe

	// Heartbeat is the mean interval between two heartbeats; each is ± 20 %.
	// One row is written an interval, whatever is in flight. Default 1s.
	Heartbeat time.Duration
	// StatementTimeout is the server's limit for a control statement.
	// Default 1s.
	StatementTimeout time.Duration
	// LeaseTTL is how long one heartbeat keeps this executor alive for others.
	// Shorter finds a silent death sooner where only the lease may fence, and
	// survives shorter outages of the store. Default 15s.
	LeaseTTL time.Duration
	// Margin is how long before the end of its lease this node stops its own
	// work. It must exceed the longest pause between a check and an effect.
	// Default 3s.
	Margin time.Duration
	// ConfirmDown is how long a refused connection is probed again before an
	// attested executor counts as dead. Default 300ms.
	ConfirmDown time.Duration
	// ProbeBudget is the same for silence and everything unclear. Default 5s.
	ProbeBudget time.Duration
	// DialTimeout and HeaderTimeout bound one probe. Defaults 500ms and 1s.
	DialTimeout, HeaderTimeout time.Duration
	// Takeovers is how many executions of one record may be begun after a
	// take-over; beyond it the record ends unknown. Default 5.
	Takeovers int
	// SettleRead is how long the safety net lets pass between two reads of a
	// watched record, ± 50 %. Default 5s.
	SettleRead time.Duration

	// WaitersPerKey, WaitersPerRealm and WaitersPerNode bound the duplicates
	// that wait at once; over it a duplicate is answered at once. Defaults
	// 1,000, 10,000 and 20,000.
	WaitersPerKey, WaitersPerRealm, WaitersPerNode int

	// MemoryBytes bounds the finalized records that are replayed without asking
	// the store. Default 64 MiB; negative: none.
	MemoryBytes int

	// AttestEvery is how often a peer is asked to dial this node back.
	// Default 1m.
	AttestEvery time.Duration
	// SweepEvery is how often records of dead executors, and this node's own
	// orphans, are looked for. Default 15s.
	SweepEvery time.Duration
	// SweepBatch is how many records one look takes over. Default 100.
	SweepBatch int
	// PurgeEvery is how often expired records are deleted, PurgeBatch how many
	// a statement. Defaults 1m and 1,000.
	PurgeEvery time.Duration
	PurgeBatch int
	// EventRetention is how long events of the audit are remembered. Default
	// 720h.
	EventRetention time.Duration
	// DrainTimeout bounds a drain; then what still runs is cancelled, awaited
	// and marked unknown. Default 5m.
	DrainTimeout time.Duration

	// Recover says what to do with an interrupted operation that no client
	// asks for. False: leave it to one that knows it. Default: knows none.
	Recover func(r records.Record) (Terms, Work, bool)

	Logger *slog.Logger // default: discards
	Events Events       // what happened, for metrics; default: ignores
}

// WithDefaults fills every zero field that has a default.
func (c Config) WithDefaults() Config {
	setDefault(&c.Policy, records.PolicyProbe)
	setDefault(&c.Heartbeat, time.Second)
	setDefault(&c.StatementTimeout, time.Second)
	setDefault(&c.LeaseTTL, 15*time.Second)
	setDefault(&c.Margin, 3*time.Second)
	setDefault(&c.ConfirmDown, 300*time.Millisecond)
	setDefault(&c.ProbeBudget, 5*time.Second)
	setDefault(&c.DialTimeout, 500*time.Millisecond)
	setDefault(&c.HeaderTimeout, time.Second)
	setDefault(&c.Takeovers, 5)
	setDefault(&c.SettleRead, 5*time.Second)
	setDefault(&c.WaitersPerKey, 1_000)
	setDefault(&c.WaitersPerRealm, 10_000)
	setDefault(&c.WaitersPerNode, 20_000)
	setDefault(&c.MemoryBytes, 64<<20)
	setDefault(&c.AttestEvery, time.Minute)
	setDefault(&c.SweepEvery, 15*time.Second)
	setDefault(&c.SweepBatch, 100)
	setDefault(&c.PurgeEvery, time.Minute)
	setDefault(&c.PurgeBatch, 1_000)
	setDefault(&c.EventRetention, 720*time.Hour)
	setDefault(&c.DrainTimeout, 5*time.Minute)
	if c.Recover == nil {
		c.Recover = func(records.Record) (Terms, Work, bool) { return Terms{}, nil, false }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Events == nil {
		c.Events = NoEvents{}
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate joins every fault. It ties the times together: a heartbeat must
// have three chances before the owner's own deadline, and two beats and a
// probe must fit into the budget after which others may fence.
func (c Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Slot == "" {
		fault("slot: missing")
	}
	if err := records.ValidateExecutorURL(c.URL); err != nil {
		faults = append(faults, err)
	}
	if c.Policy != records.PolicyLease && c.Policy != records.PolicyProbe {
		fault(`policy: %q is neither "probe" nor "lease"`, c.Policy)
	}
	for name, d := range map[string]time.Duration{
		"heartbeat": c.Heartbeat, "statement timeout": c.StatementTimeout, "lease ttl": c.LeaseTTL, "margin": c.Margin,
		"confirm down": c.ConfirmDown, "probe budget": c.ProbeBudget, "dial timeout": c.DialTimeout, "header timeout": c.HeaderTimeout,
		"settle read": c.SettleRead, "attest every": c.AttestEvery, "sweep every": c.SweepEvery, "purge every": c.PurgeEvery, "drain timeout": c.DrainTimeout,
		"event retention": c.EventRetention,
	} {
		if d < 0 {
			fault("%s: %s is negative", name, d)
		}
	}
	for name, n := range map[string]int{
		"takeovers": c.Takeovers, "sweep batch": c.SweepBatch, "purge batch": c.PurgeBatch,
		"waiters per key": c.WaitersPerKey, "waiters per realm": c.WaitersPerRealm, "waiters per node": c.WaitersPerNode,
	} {
		if n < 0 {
			fault("%s: %d is negative", name, n)
		}
	}
	if need := c.Heartbeat*36/10 + c.StatementTimeout; need > c.LeaseTTL-c.Margin {
		fault("3.6 × heartbeat %s + statement timeout %s = %s is more than lease ttl %s − margin %s = %s",
			c.Heartbeat, c.StatementTimeout, need, c.LeaseTTL, c.Margin, c.LeaseTTL-c.Margin)
	}
	if need := c.Heartbeat*24/10 + c.StatementTimeout + c.HeaderTimeout; need > c.ProbeBudget {
		fault("2.4 × heartbeat %s + statement timeout %s + header timeout %s = %s is more than probe budget %s",
			c.Heartbeat, c.StatementTimeout, c.HeaderTimeout, need, c.ProbeBudget)
	}
	if c.Policy == records.PolicyProbe && c.trust().StartLimit() < c.Heartbeat*12/10+c.StatementTimeout {
		fault("probe budget %s leaves only %s after a heartbeat to start work in: want 1.2 × heartbeat %s + statement timeout %s",
			c.ProbeBudget, c.trust().StartLimit(), c.Heartbeat, c.StatementTimeout)
	}
	return errors.Join(faults...)
}

func (c Config) trust() Trust {
	return Trust{Policy: c.Policy, LeaseTTL: c.LeaseTTL, Margin: c.Margin, ProbeBudget: c.ProbeBudget}
}
