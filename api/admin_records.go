package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// RecordPage is a part of a listing.
type RecordPage struct {
	Records []RecordView `json:"records"`
	More    bool         `json:"more"`
	Next    string       `json:"next,omitempty"` // after this one it goes on
}

// ListRecords reads records in the order of their ids, so that no page holds
// what another has held: at most limit, from as many pages of the store as that
// takes, but no more than pages. There may be more where it is short.
func ListRecords(ctx context.Context, s records.Records, f records.Filter, limit, pages int) (RecordPage, error) {
	list := RecordPage{Records: []RecordView{}, More: true}
	for range pages {
		f.Limit = min(limit-len(list.Records), largestPage)
		page, err := s.List(ctx, f)
		if err != nil {
			return list, err
		}
		list.Records = append(list.Records, views(page.Records, viewRecord)...)
		list.More, f.After = page.More, page.Next
		if !list.More || len(list.Records) >= limit {
			break
		}
	}
	if list.More {
		list.Next = f.After.String()
	}
	return list, nil
}

// listPages bounds what one request examines.
const listPages = 10

func (a *Admin) listRecords(r *http.Request) (any, error) {
	var f records.Filter
	limit := defaultPage
	err := readQuery(r, map[string]func(word string) error{
		"realm":     func(word string) error { f.Realm = &word; return nil },
		"key":       func(word string) error { f.Key = &word; return nil },
		"operation": func(word string) error { f.Operation = &word; return nil },
		"state": func(word string) error {
			f.State = records.State(word)
			if !f.State.Valid() {
				return errors.New("want in_progress, finalized, unknown or released")
			}
			return nil
		},
		"executor":   func(word string) (err error) { f.Executor, err = records.ParseExecutorID(word); return err },
		"older_than": func(word string) (err error) { f.OlderThan, err = readAge(word); return err },
		"after":      func(word string) (err error) { f.After, err = records.ParseID(word); return err },
		"limit":      func(word string) (err error) { limit, err = readLimit(word); return err },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	return ListRecords(ctx, a.config.Store, f, limit, listPages)
}

func (a *Admin) showRecord(r *http.Request) (any, error) {
	id, err := recordID(r)
	if err == nil {
		err = readQuery(r, nil)
	}
	if err != nil {
		return nil, err
	}
	return a.reporter().Record(r.Context(), id)
}

func (a *Admin) reporter() Reporter {
	return Reporter{Store: a.config.Store, Ask: a.config.Ask, Waiting: a.config.Node.WaitingFor, Takeovers: a.config.Takeovers}
}

func (a *Admin) releaseRecord(r *http.Request, who operator) (any, error) {
	var o order
	return a.intervene(r, who, &o, "release", func(ctx context.Context, id records.ID) (records.Record, error) {
		return a.config.Store.ReleaseByOperator(ctx, records.Intervention{ID: id, Epoch: o.Epoch, Actor: who.name, Reason: o.Reason})
	})
}

// resolution is an order with the response that an operator has found out.
type resolution struct {
	order
	Response  *ResponseDocument `json:"response"`
	Retention string            `json:"retention"` // default 24h

	outcome records.Outcome
}

func (o *resolution) check() (err error) {
	if err := o.order.check(); err != nil {
		return err
	}
	if o.Response == nil {
		return errors.New("response: missing; it is what duplicates are answered from now on")
	}
	o.outcome, err = Resolution(*o.Response, o.Retention)
	return err
}

// Resolution is the outcome that a record gets from an operator who has found
// out what the response was, remembered for as long as retention says; empty:
// 24 hours.
func Resolution(d ResponseDocument, retention string) (records.Outcome, error) {
	response, err := d.response(maxResolvedBytes)
	if err != nil {
		return records.Outcome{}, fmt.Errorf("response: %w", err)
	}
	o := records.Outcome{Response: response, Retention: takeover.DefaultRetention}
	if retention != "" {
		if o.Retention, err = readAge(retention); err != nil {
			return o, fmt.Errorf("retention: %w", err)
		}
	}
	return o, o.Validate()
}

func (a *Admin) resolveRecord(r *http.Request, who operator) (any, error) {
	var o resolution
	return a.intervene(r, who, &o, "resolve", func(ctx context.Context, id records.ID) (records.Record, error) {
		return a.config.Store.ResolveByOperator(ctx, records.Intervention{ID: id, Epoch: o.Epoch, Actor: who.name, Reason: o.Reason}, o.outcome)
	})
}

// changeOf is what every change of a record answers to, apart from what else it
// says.
type changeOf interface {
	check() error
	seen() *order
}

func (o *order) seen() *order { return o }

// intervene changes a record as it was seen, and logs it.
func (a *Admin) intervene(r *http.Request, who operator, o changeOf, action string, change func(ctx context.Context, id records.ID) (records.Record, error)) (any, error) {
	id, err := recordID(r)
	if err == nil {
		err = readOrder(r, o)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	before, _, err := Outline(ctx, a.config.Store, id)
	if err != nil {
		return nil, err
	}
	after, err := change(ctx, id)
	if err != nil {
		return nil, a.conflict(before.Record, err)
	}
	a.change(r, who, action, "record", id, "epoch", after.Epoch, "before", before.Record.State, "after", after.State, "reason", o.seen().Reason)
	return a.reporter().Record(ctx, id)
}

// conflict says what stands there where a change was refused.
func (*Admin) conflict(stands records.Record, err error) error {
	if !errors.Is(err, records.ErrFenced) {
		return err
	}
	return refuse(adminConflict, "The record is %s at epoch %d. What is unknown can be released, resolved and reconciled, what is in progress of a dead executor released and reconciled, "+
		"and both only at the epoch at which it was seen.", stands.State, stands.Epoch)
}

// reconcileTime is how long an operator waits for a reconciler. It goes on
// without.
const reconcileTime = 30 * time.Second

// Reconciled is what a reconciler that an operator had asked came to.
type Reconciled struct {
	Claimed bool         `json:"claimed"` // this node could take the record for it
	Asked   bool         `json:"asked"`
	Finding string       `json:"finding,omitempty"` // applied, not_applied, pending, undecidable
	Over    bool         `json:"over"`              // the record is settled; else it goes on
	Why     string       `json:"why,omitempty"`     // not claimed: what keeps the node from it
	Now     RecordReport `json:"now"`
}

func (a *Admin) reconcileRecord(r *http.Request, who operator) (any, error) {
	var o order
	id, err := recordID(r)
	if err == nil {
		err = readOrder(r, &o)
	}
	if err != nil {
		return nil, err
	}
	before, err := a.config.Store.Load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), reconcileTime)
	defer cancel()
	came, err := a.config.Node.Reconcile(ctx, id, o.Epoch)
	if err != nil {
		return nil, a.conflict(before.Record, err)
	}
	answer := Reconciled{Claimed: came.Claimed, Asked: came.Asked, Over: came.Over}
	if came.Asked {
		answer.Finding = came.Finding.String()
	}
	last, stop := context.WithTimeout(context.WithoutCancel(r.Context()), storeTime) // who asked may be gone
	defer stop()
	if came.Claimed {
		a.note(last, records.Occurrence{
			Kind: records.EventReconciled, Record: id, Epoch: came.Record.Epoch, Executor: came.Record.Executor, Actor: who.name,
			Reason: fmt.Sprintf("found %s: %s", cmp.Or(answer.Finding, "nothing yet"), o.Reason),
			Before: string(before.Record.State), After: string(came.Record.State),
		})
		a.change(r, who, "reconcile", "record", id, "epoch", came.Record.Epoch, "finding", answer.Finding,
			"before", before.Record.State, "after", came.Record.State, "reason", o.Reason)
	}
	if answer.Now, err = a.reporter().Record(last, id); !came.Claimed {
		answer.Why = whyNot(answer.Now)
	}
	return answer, err
}

// whyNot says what kept a node from a record that it was to reconcile.
func whyNot(now RecordReport) string {
	switch records.State(now.Record.State) {
	case records.Unknown:
		return "Its last owner has not said that its work has ended, and its lease is still running: an effect may yet come. Ask again when the owner answers, or when its lease has run out."
	case records.InProgress:
		return "Its owner has it, or is not yet known to be dead: see the explanation. If the owner does not answer, ask again in a moment."
	case records.Finalized, records.Released:
	}
	return "Meanwhile it has come to an end."
}

// note writes down what was done, where that is not part of doing it.
func (a *Admin) note(ctx context.Context, o records.Occurrence) {
	if err := a.config.Store.Note(ctx, []records.Occurrence{o}); err != nil {
		a.config.Logger.ErrorContext(ctx, "operator's change not noted", "kind", o.Kind, "record", o.Record, "error", err)
	}
}

// readQuery reads the query strictly: each name once, and no other.
func readQuery(r *http.Request, known map[string]func(word string) error) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(adminInvalid, "The query cannot be read: %v.", err)
	}
	for name, words := range query {
		read, is := known[name]
		switch {
		case !is:
			names := make([]string, 0, len(known))
			for k := range known {
				names = append(names, k)
			}
			slices.Sort(names)
			return refuse(adminInvalid, "The query has %q, which is not known here; known: %s.", name, strings.Join(names, ", "))
		case len(words) != 1:
			return refuse(adminInvalid, "The query has %s %d times.", name, len(words))
		}
		if err := read(words[0]); err != nil {
			return refuse(adminInvalid, "The query's %s: %v.", name, err)
		}
	}
	return nil
}

func readAge(word string) (time.Duration, error) {
	d, err := time.ParseDuration(word)
	if err != nil || d <= 0 {
		return 0, errors.New("want a duration such as 10m or 24h")
	}
	return d, nil
}

func readLimit(word string) (int, error) {
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 || n > largestPage {
		return 0, fmt.Errorf("want 1 to %d", largestPage)
	}
	return n, nil
}
