package recordstest

import (
	"slices"
	"strconv"
	"time"

	"github.com/probate-dev/probate/records"
)

// What operators do, and what is noted, in the model.

func (m *model) note(e records.Event) {
	m.written++
	m.audit = append(m.audit, noted{m.written, e})
}

func (m *model) events(f records.EventFilter) (records.EventPage, error) {
	after, err := f.Cursor()
	if err != nil {
		return records.EventPage{}, err
	}
	page := records.EventPage{Next: strconv.FormatInt(after, 10)}
	for _, x := range m.audit {
		fits := (f.Record == records.ID{} || f.Record == x.event.Record) &&
			(f.Executor == records.ExecutorID{} || f.Executor == x.event.Executor) &&
			(f.Kind == "" || f.Kind == x.event.Kind)
		if int64(x.n) <= after || !fits {
			continue
		}
		if len(page.Events) == f.Limit {
			page.More = true
			return page, nil
		}
		page.Events, page.Next = append(page.Events, x.event), strconv.Itoa(x.n)
	}
	return page, nil
}

func (m *model) purgeEvents(now time.Time, age time.Duration, limit int) int {
	var old []noted
	for _, x := range m.audit {
		if now.Sub(x.event.At) > age {
			old = append(old, x)
		}
	}
	slices.SortStableFunc(old, func(a, b noted) int { return a.event.At.Compare(b.event.At) })
	old = old[:min(limit, len(old))]
	m.audit = slices.DeleteFunc(m.audit, func(x noted) bool {
		return slices.ContainsFunc(old, func(o noted) bool { return o.n == x.n })
	})
	return len(old)
}

// intervene releases the record, or resolves it if there is an outcome.
func (m *model) intervene(now time.Time, i records.Intervention, o *records.Outcome) (records.Record, error) {
	if err := i.Validate(); err != nil {
		return records.Record{}, err
	}
	kind, to, retention := records.EventReleased, records.Released, time.Duration(0)
	if o != nil {
		if err := o.Validate(); err != nil {
			return records.Record{}, err
		}
		kind, to, retention = records.EventResolved, records.Finalized, o.Retention
	}
	r, ok := m.records[i.ID]
	if !ok {
		return records.Record{}, records.ErrNotFound
	}
	if r.State == to && r.Epoch == i.Epoch+1 && m.marks[i.ID] == i.Mark(o) {
		return *r, nil // the reply was lost
	}
	may := r.State == records.Unknown ||
		o == nil && r.State == records.InProgress && m.is(r.Executor, records.Fenced, records.Gone)
	if r.Epoch != i.Epoch || !may {
		return records.Record{}, records.ErrFenced
	}
	before := r.State
	r.State, r.Attempt, r.FinalizedAt, r.ExpiresAt = to, i.Mark(o), now, now.Add(retention)
	r.Epoch++
	m.marks[i.ID] = i.Mark(o)
	if o != nil {
		r.Response = &o.Response
		if r.Key == "" { // erased
			r.Response = &records.Response{Status: o.Response.Status}
		}
	}
	m.note(records.Event{
		At: now, Kind: kind, Record: r.ID, Epoch: r.Epoch, Executor: r.Executor, Actor: i.Actor, Reason: i.Reason,
		Before: string(before), After: string(to),
	})
	return *r, nil
}

// erase blanks all of a principal's records at once: its page is the whole.
func (m *model) erase(now time.Time, e records.Erasure) (records.Erased, error) {
	if err := e.Validate(); err != nil {
		return records.Erased{}, err
	}
	var ids []records.ID
	for id := range m.records {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, records.ID.Compare)
	var done records.Erased
	examined := 0
	for _, id := range ids {
		if id.Compare(e.After) <= 0 {
			continue
		}
		if examined++; examined > e.Limit {
			done.More = true
			break
		}
		done.Next = id
		r := m.records[id]
		switch {
		case r.Realm != e.Realm || !e.Of(id, r.Key):
		case r.State == records.InProgress:
			done.Running++
		default:
			r.Key, r.Resource, r.Request = "", "", nil
			if r.Response != nil {
				r.Response = &records.Response{Status: r.Response.Status}
			}
			done.Count++
		}
	}
	if !done.More {
		done.Next = records.ID{}
	}
	if done.Count > 0 {
		m.erasures++
	}
	if e.Notable(done) {
		m.note(records.Event{At: now, Kind: records.EventErased, Actor: e.Actor, Reason: e.Note(done)})
	}
	return done, nil
}
