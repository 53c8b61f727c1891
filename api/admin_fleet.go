package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
)

// executorID reads the id in the path.
func executorID(r *http.Request) (records.ExecutorID, error) {
	id, err := records.ParseExecutorID(chi.URLParam(r, "id"))
	if err != nil {
		return id, refuse(adminInvalid, "The path has no executor: %v.", err)
	}
	return id, nil
}

// ExecutorList is all executors of a listing.
type ExecutorList struct {
	Executors []ExecutorView `json:"executors"`
}

// ListExecutors lists those that are active or draining, or all.
func ListExecutors(ctx context.Context, s records.Executors, all bool) (ExecutorList, error) {
	states := []records.ExecutorState{records.Active, records.Draining}
	if all {
		states = nil
	}
	list, err := s.ListExecutors(ctx, states...)
	return ExecutorList{Executors: views(list, ViewExecutor)}, err
}

func (a *Admin) listExecutors(r *http.Request) (any, error) {
	all := false
	err := readQuery(r, map[string]func(word string) error{
		"all": func(word string) (err error) { all, err = strconv.ParseBool(word); return err },
	})
	if err != nil {
		return nil, err
	}
	return ListExecutors(r.Context(), a.config.Store, all)
}

func (a *Admin) showExecutor(r *http.Request) (any, error) {
	id, err := executorID(r)
	if err == nil {
		err = readQuery(r, nil)
	}
	if err != nil {
		return nil, err
	}
	return a.reporter().Executor(r.Context(), id)
}

// fencing is an order to declare an executor dead.
type fencing struct {
	Reason string `json:"reason"`
	Force  bool   `json:"force"` // whatever its lease: asserts that the process is dead
}

func (f *fencing) check() error { return records.ValidateGrounds(f.Reason) }

func (a *Admin) fenceExecutor(r *http.Request, who operator) (any, error) {
	id, err := executorID(r)
	if err != nil {
		return nil, err
	}
	var f fencing
	if err := readOrder(r, &f); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	before, err := a.config.Store.LoadExecutor(ctx, id)
	if err != nil {
		return nil, err
	}
	after, err := a.config.Store.FenceByOperator(ctx, records.Condemnation{Executor: id, Actor: who.name, Reason: f.Reason, Force: f.Force})
	if err != nil {
		return nil, err
	}
	a.change(r, who, "fence", "executor", id, "force", f.Force, "before", before.State, "after", after.State, "reason", f.Reason)
	return a.reporter().Executor(ctx, id)
}

// erasing is an order to forget what a principal's records say.
type erasing struct {
	Realm     string `json:"realm"`
	Principal string `json:"principal"` // see [ParsePrincipal]
	Reason    string `json:"reason"`
	After     string `json:"after"` // the next of the answer before

	erasure records.Erasure
}

func (e *erasing) check() (err error) {
	if e.erasure.Principal, err = ParsePrincipal(e.Principal); err != nil {
		return fmt.Errorf("principal: %w", err)
	}
	if e.After != "" {
		if e.erasure.After, err = records.ParseID(e.After); err != nil {
			return fmt.Errorf("after: %w", err)
		}
	}
	e.erasure.Realm, e.erasure.Reason = e.Realm, e.Reason
	return records.ValidateGrounds(e.Reason)
}

// Erased is what an erasure did.
type Erased struct {
	Erased     int    `json:"erased"`      // records whose content is forgotten
	InProgress int    `json:"in_progress"` // records that stay, because they run
	More       bool   `json:"more"`
	Next       string `json:"next,omitempty"` // after this one it goes on
}

// Bounds of one erasure over the API: so many records are examined.
const (
	erasePage  = 1000
	erasePages = 50
)

// Erase forgets page after page, no more than pages.
func Erase(ctx context.Context, s records.Interventions, e records.Erasure, pages int) (Erased, error) {
	done := Erased{More: true}
	e.Limit = erasePage
	for range pages {
		page, err := s.Erase(ctx, e)
		if err != nil {
			return done, err
		}
		done.Erased, done.InProgress = done.Erased+page.Count, done.InProgress+page.Running
		if e.After, done.More = page.Next, page.More; !page.More {
			return done, nil
		}
	}
	done.Next = e.After.String()
	return done, nil
}

func (a *Admin) erasePrincipal(r *http.Request, who operator) (any, error) {
	var e erasing
	if err := readOrder(r, &e); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	e.erasure.Actor = who.name
	done, err := Erase(ctx, a.config.Store, e.erasure, erasePages)
	if done.Erased > 0 || err == nil {
		a.change(r, who, "erase", "realm", e.Realm, "principal", records.PrincipalRef(e.Realm, e.erasure.Principal),
			"erased", done.Erased, "in_progress", done.InProgress, "more", done.More, "reason", e.Reason)
	}
	return done, err
}

// EventList is a part of the audit.
type EventList struct {
	Events []EventView `json:"events"`
	More   bool        `json:"more"`
	Next   string      `json:"next"` // after this one it goes on, also when there is no more yet
}

func (a *Admin) listEvents(r *http.Request) (any, error) {
	f := records.EventFilter{Limit: defaultPage}
	err := readQuery(r, map[string]func(word string) error{
		"record":   func(word string) (err error) { f.Record, err = records.ParseID(word); return err },
		"executor": func(word string) (err error) { f.Executor, err = records.ParseExecutorID(word); return err },
		"kind":     func(word string) error { f.Kind = records.EventKind(word); return nil },
		"after":    func(word string) error { f.After = word; return nil },
		"limit":    func(word string) (err error) { f.Limit, err = readLimit(word); return err },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	page, err := a.config.Store.Events(ctx, f)
	return EventList{Events: views(page.Events, viewEvent), More: page.More, Next: page.Next}, err
}

// because is an order that says nothing but why.
type because struct {
	Reason string `json:"reason"`
}

func (b *because) check() error { return records.ValidateGrounds(b.Reason) }

// Purged is what a purge deleted.
type Purged struct {
	Records   int  `json:"records"`
	Executors int  `json:"executors"`
	More      bool `json:"more"` // there was not enough time for all
}

// executorMemory is how long an executor that has ended is remembered.
const executorMemory = 24 * time.Hour

// Purge deletes what has expired, a batch at a time, until nothing is left or
// the deadline of ctx has passed, which is no error, and notes it as the
// operator's.
func Purge(ctx context.Context, s AdminStore, batch int, operator, reason string) (Purged, error) {
	done, err := purge(ctx, s, batch)
	if done.Records == 0 && done.Executors == 0 {
		return done, err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	err = errors.Join(err, s.Note(last, []records.Occurrence{{
		Kind: records.EventPurged, Actor: operator,
		Reason: fmt.Sprintf("%d records and %d executors: %s", done.Records, done.Executors, reason),
	}}))
	return done, err
}

func purge(ctx context.Context, s records.Store, batch int) (done Purged, err error) {
	for {
		n, err := s.Purge(ctx, batch)
		done.Records += n
		if err != nil {
			done.More = errors.Is(ctx.Err(), context.DeadlineExceeded)
			if done.More {
				err = nil
			}
			return done, err
		}
		if n < batch {
			break
		}
	}
	done.Executors, err = s.PurgeExecutors(ctx, executorMemory)
	return done, err
}

// purgeBatch is how many records a statement deletes.
const purgeBatch = 1000

func (a *Admin) purge(r *http.Request, who operator) (any, error) {
	var b because
	if err := readOrder(r, &b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTime)
	defer cancel()
	done, err := Purge(ctx, a.config.Store, purgeBatch, who.name, b.Reason)
	if err == nil || done.Records > 0 {
		a.change(r, who, "purge", "records", done.Records, "executors", done.Executors, "more", done.More, "reason", b.Reason)
	}
	return done, err
}
