package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/probate-dev/probate/records"
)

// Bounds of a survey: it is made for a scrape, so it must not cost more than
// one.
const (
	surveyEvery   = 15 * time.Second
	surveyTimeout = 2 * time.Second
	surveyRows    = 1000 // a page
	surveyPages   = 5    // of each kind, in one survey
)

// survey is what the store says about records that need somebody. It is read
// when metrics are, at most every 15 seconds and a bounded number of rows; a
// longer list of unknown records is counted on in the next survey.
type survey struct {
	store records.Records
	self  func() records.ExecutorID
	log   *slog.Logger
	every time.Duration

	mu       sync.Mutex
	made     time.Time
	unknown  int        // of the last complete count, or of this one if that is more
	counted  int        // in this count
	after    records.ID // where this count goes on
	oldestAt time.Time  // of this executor's records and of orphans; zero: none
}

// read returns how many records are unknown, and the age of the oldest record
// in progress that is this node's or nobody's.
func (s *survey) read() (unknown int, oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.made) >= s.every {
		ctx, cancel := context.WithTimeout(context.Background(), surveyTimeout)
		defer cancel()
		if err := s.make(ctx); err != nil {
			s.log.WarnContext(ctx, "survey of the store failed", "error", err)
		}
		s.made = time.Now()
	}
	if !s.oldestAt.IsZero() {
		oldest = max(time.Since(s.oldestAt), 0)
	}
	return s.unknown, oldest
}

func (s *survey) make(ctx context.Context) error {
	self := s.self()
	own, err := oldestOf(func(after records.ID) ([]records.Record, error) {
		return s.store.InProgress(ctx, self, after, surveyRows)
	})
	if err != nil {
		return err
	}
	orphan, err := oldestOf(func(after records.ID) ([]records.Record, error) { return s.store.Orphans(ctx, after, surveyRows) })
	if err != nil {
		return err
	}
	if s.oldestAt = own; own.IsZero() || !orphan.IsZero() && orphan.Before(own) {
		s.oldestAt = orphan
	}
	return s.count(ctx)
}

// oldestOf is when the oldest record of a listing began; zero: it is empty.
func oldestOf(page func(after records.ID) ([]records.Record, error)) (oldest time.Time, err error) {
	var after records.ID
	for range surveyPages {
		rows, err := page(after)
		if err != nil {
			return oldest, err
		}
		for _, r := range rows {
			if oldest.IsZero() || r.CreatedAt.Before(oldest) {
				oldest = r.CreatedAt
			}
			after = r.ID
		}
		if len(rows) < surveyRows {
			break
		}
	}
	return oldest, nil
}

// count goes on counting unknown records.
func (s *survey) count(ctx context.Context) error {
	for range surveyPages {
		page, err := s.store.List(ctx, records.Filter{State: records.Unknown, After: s.after, Limit: surveyRows})
		if err != nil {
			return err
		}
		s.counted += len(page.Records)
		s.after = page.Next
		if !page.More {
			s.unknown, s.counted, s.after = s.counted, 0, records.ID{}
			return nil
		}
	}
	s.unknown = max(s.unknown, s.counted)
	return nil
}
