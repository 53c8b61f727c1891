package takeover

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/probate-dev/probate/records"
)

func finalized(key string, body int) records.Record {
	return records.Record{
		ID: records.Key{Key: key}.ID(), State: records.Finalized,
		Response: &records.Response{Status: 200, Body: make([]byte, body)}, ExpiresAt: time.Now().Add(24 * time.Hour),
	}
}

func TestMemory(t *testing.T) {
	t.Run("RemembersForAWhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := memory{bytes: 1 << 20}
			r := finalized("k", 10)
			m.keep(r, 0)
			<-time.After(rememberFor)
			if _, ok := m.recall(r.ID); !ok {
				t.Error("forgot too early")
			}
			<-time.After(time.Nanosecond)
			if _, ok := m.recall(r.ID); ok {
				t.Error("remembers for too long")
			}
			if m.size != 0 || m.order.Len() != 0 {
				t.Errorf("%d bytes in %d items are left", m.size, m.order.Len())
			}
		})
	})

	t.Run("DropsWhatNobodyRepeats", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := memory{bytes: 1 << 20}
			for i := range 100 {
				m.keep(finalized(fmt.Sprint(i), 10), 0)
			}
			<-time.After(rememberFor + time.Nanosecond)
			m.keep(finalized("last", 10), 0)
			if m.order.Len() != 1 || len(m.items) != 1 || m.size != sizeOf(finalized("last", 10)) {
				t.Errorf("%d bytes in %d items are left", m.size, m.order.Len())
			}
		})
	})

	t.Run("KeepsNothingThatChangesOrExpiresSoon", func(t *testing.T) {
		m := memory{bytes: 1 << 20}
		unknown, expiring := finalized("unknown", 1), finalized("expiring", 1)
		unknown.State = records.Unknown
		expiring.ExpiresAt = time.Now().Add(rememberFor)
		for _, r := range []records.Record{unknown, expiring} {
			m.keep(r, 0)
			if _, ok := m.recall(r.ID); ok {
				t.Errorf("kept a record that is %s and expires in %s", r.State, time.Until(r.ExpiresAt))
			}
		}
	})

	t.Run("ForgetsTheLeastUsedOverItsBound", func(t *testing.T) {
		m := memory{bytes: 10 * (rowBytes + 100)}
		first := finalized("0", 100)
		for i := range 20 {
			m.keep(finalized(fmt.Sprint(i), 99-len(fmt.Sprint(i))), 0)
			if i == 0 {
				continue
			}
			if _, ok := m.recall(first.ID); !ok {
				t.Fatalf("forgot the most used after %d", i)
			}
		}
		if m.size > m.bytes {
			t.Errorf("%d bytes, over %d", m.size, m.bytes)
		}
		if _, ok := m.recall(finalized("3", 0).ID); ok {
			t.Error("kept the least used")
		}
		if huge := finalized("huge", m.bytes); true {
			m.keep(huge, 0)
			if _, ok := m.recall(huge.ID); ok {
				t.Error("one record took all the room")
			}
		}
	})

	t.Run("AnErasureDropsEverything", func(t *testing.T) {
		m := memory{bytes: 1 << 20}
		r := finalized("k", 10)
		m.keep(r, 0)
		m.heard(0)
		if _, ok := m.recall(r.ID); !ok {
			t.Fatal("forgot without an erasure")
		}
		m.heard(3)
		if _, ok := m.recall(r.ID); ok || m.size != 0 || m.order.Len() != 0 {
			t.Errorf("%d bytes in %d items are left", m.size, m.order.Len())
		}
	})

	t.Run("WhatWasReadBeforeAnErasureIsNotKeptAfterIt", func(t *testing.T) {
		m := memory{bytes: 1 << 20}
		before := m.erasures.Load()
		r := finalized("k", 10) // read here
		m.heard(1)
		m.keep(r, before)
		if _, ok := m.recall(r.ID); ok {
			t.Error("kept what was read before")
		}
		m.keep(r, m.erasures.Load())
		if _, ok := m.recall(r.ID); !ok {
			t.Error("did not keep what was read after")
		}
	})
}
