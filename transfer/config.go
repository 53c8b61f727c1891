package transfer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/transfer/move"
)

// Coordinator runs work once in the fleet; [takeover.Node] is one.
type Coordinator interface {
	// Do executes the work, or says what became of another's execution.
	Do(ctx context.Context, req takeover.Request, work takeover.Work) (takeover.Answer, error)
	// Entry reports whether this process runs the record, and a channel that
	// is closed when it no longer does.
	Entry(id records.ID) (done <-chan struct{}, running bool)
}

// Store is what a store must do for data flows.
type Store interface {
	records.Flows
	Load(ctx context.Context, id records.ID) (records.Held, error)
	ListExecutors(ctx context.Context, states ...records.ExecutorState) ([]records.Executor, error)
	Orphans(ctx context.Context, after records.ID, limit int) ([]records.Record, error)
}

// Peers reaches the other nodes of the fleet.
type Peers interface {
	// Self is this process' executor, as it is now.
	Self() records.ExecutorID
	// Running asks a record's executor, and reports whether it has signed that
	// it runs it.
	Running(ctx context.Context, h records.Held) bool
	// Heed has the node at url look at what is wanted of a flow, and returns
	// once it has acted upon that. The error is why it could not be reached.
	Heed(ctx context.Context, url, flow string) error
}

// Ends knows what can be read and where can be written.
type Ends interface {
	// Source of the task's dataset. An error of it is for good.
	Source(t Task) (move.Source, error)
	// Sink at the task's destination. An error of it is for good.
	Sink(t Task) (move.Sink, error)
	// Bound reports whether the task can be done only where it was begun.
	Bound(t Task) bool
	// Inbox is where a push is received for which this fleet is the consumer,
	// or an error if there is no such place.
	Inbox(t Task) (move.Sink, error)
}

// Config is how a node moves data. The zero value of a field is its default,
// if it has one.
type Config struct {
	Coordinator Coordinator
	Store       Store
	Peers       Peers
	Ends        Ends
	Slot        string // the stable place this process runs in

	// PublicURL is where consumers reach this fleet: the data of a pull, and of
	// a push that is received here, is at PublicURL/{id}/data. Empty: neither
	// is offered.
	PublicURL string
	// Tokens are those of the control planes; one of them must come with every
	// command. Empty: nobody is asked.
	Tokens []string
	// Certificates: who has shown a certificate that the listener has verified
	// needs no token, and who has shown none needs one.
	Certificates bool

	// ControlPlane is where callbacks go that have no address of their own.
	ControlPlane string
	// CallbackToken goes with callbacks to ControlPlane, and to addresses that
	// begin with one of CallbackAllow.
	CallbackToken string
	// CallbackAllow are beginnings of the addresses that a message may name for
	// its callbacks. Empty: any may be named.
	CallbackAllow []string
	// CallbackTimeout bounds one delivery. Default 10s.
	CallbackTimeout time.Duration
	// CallbackPause is how long after a failed delivery the next is tried; it
	// doubles up to CallbackPauseMax. Defaults 1s and 1m.
	CallbackPause, CallbackPauseMax time.Duration
	// CallbackGiveUp is how old a callback may become. Default 7 days.
	CallbackGiveUp time.Duration

	// Async answers a start with 202 STARTING and a prepare with 202 PREPARING,
	// and tells the rest by callback.
	Async bool
	// RejectDuplicates refuses a start of a flow that exists with 409, unless it
	// is the very message that began it.
	RejectDuplicates bool

	// Flows is how many copies this node makes at once, Queue how many more
	// wait for their turn. Defaults 16 and 64.
	Flows, Queue int
	// MaxBytes bounds one flow. Default: none.
	MaxBytes int64
	// StallTimeout is how long an end may move no byte. Default 30s.
	StallTimeout time.Duration
	// NoteEvery is how often a flow's progress is written. Default 5s.
	NoteEvery time.Duration
	// Rounds is how often a copy that came no further is begun again before the
	// flow fails; between two it pauses RoundPause, doubling up to a minute.
	// Defaults 5 and 2s.
	Rounds     int
	RoundPause time.Duration
	// OrderTimeout is how long suspend and terminate may take. Default 20s.
	OrderTimeout time.Duration
	// StrayEvery is how often flows are looked for that nobody runs. Default 5s.
	StrayEvery time.Duration
	// WorkTimeout bounds one execution. Default 7 days.
	WorkTimeout time.Duration
	// Retention is how long a flow is remembered that has ended. Default 30
	// days.
	Retention time.Duration

	Registration Registration // default: nobody is told
	Events       Events       // default: nobody listens

	// Client delivers callbacks. Default: one that follows no redirect and uses
	// no proxy.
	Client *http.Client
	Logger *slog.Logger // default: discards
}

func (c Config) withDefaults() Config {
	c.CallbackTimeout = cmp.Or(c.CallbackTimeout, 10*time.Second)
	c.CallbackPause = cmp.Or(c.CallbackPause, time.Second)
	c.CallbackPauseMax = cmp.Or(c.CallbackPauseMax, time.Minute)
	c.CallbackGiveUp = cmp.Or(c.CallbackGiveUp, 7*24*time.Hour)
	c.Flows, c.Queue = cmp.Or(c.Flows, 16), cmp.Or(c.Queue, 64)
	c.StallTimeout = cmp.Or(c.StallTimeout, 30*time.Second)
	c.NoteEvery = cmp.Or(c.NoteEvery, 5*time.Second)
	c.Rounds, c.RoundPause = cmp.Or(c.Rounds, 5), cmp.Or(c.RoundPause, 2*time.Second)
	c.OrderTimeout = cmp.Or(c.OrderTimeout, 20*time.Second)
	c.StrayEvery = cmp.Or(c.StrayEvery, 5*time.Second)
	c.WorkTimeout = cmp.Or(c.WorkTimeout, 7*24*time.Hour)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.PublicURL = strings.TrimSuffix(c.PublicURL, "/")
	c.ControlPlane = strings.TrimSuffix(c.ControlPlane, "/")
	if c.Client == nil {
		c.Client = &http.Client{
			Transport:     move.NewTransport(new(Catalogue).dialable),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if c.Events == nil {
		c.Events = unheard{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Validate joins every fault of what can be configured.
func (c Config) Validate() error {
	var faults []error
	for name, address := range map[string]string{"public_url": c.PublicURL, "control plane": c.ControlPlane} {
		if err := checkURL(address); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", name, err))
		}
	}
	for name, n := range map[string]int64{
		"flows": int64(c.Flows), "queue": int64(c.Queue), "max bytes": c.MaxBytes, "rounds": int64(c.Rounds),
		"stall timeout": int64(c.StallTimeout), "note every": int64(c.NoteEvery), "retention": int64(c.Retention),
		"work timeout": int64(c.WorkTimeout), "order timeout": int64(c.OrderTimeout),
		"callback timeout": int64(c.CallbackTimeout), "callback give up": int64(c.CallbackGiveUp),
	} {
		if n < 0 {
			faults = append(faults, fmt.Errorf("%s: negative", name))
		}
	}
	for _, t := range c.Tokens {
		if len(t) < 16 {
			faults = append(faults, errors.New("tokens: one is shorter than 16 bytes"))
		}
	}
	return errors.Join(faults...)
}

// hashed are tokens as they are compared: of one length, whatever they were.
func hashed(tokens []string) [][sha256.Size]byte {
	h := make([][sha256.Size]byte, len(tokens))
	for i, t := range tokens {
		h[i] = sha256.Sum256([]byte(t))
	}
	return h
}
