package sqlite_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	kinds := []error{records.ErrUnavailable, records.ErrCorrupt, sqlite.ErrReadOnly}
	for _, c := range []struct {
		code sqlite3.ErrorCode
		want []error
	}{
		{sqlite3.BUSY, []error{records.ErrUnavailable}},
		{sqlite3.LOCKED, []error{records.ErrUnavailable}},
		{sqlite3.IOERR, []error{records.ErrUnavailable}},
		{sqlite3.FULL, []error{records.ErrUnavailable}},
		{sqlite3.CANTOPEN, []error{records.ErrUnavailable}},
		{sqlite3.INTERRUPT, []error{records.ErrUnavailable}},
		{sqlite3.NOMEM, []error{records.ErrUnavailable}},
		{sqlite3.PROTOCOL, []error{records.ErrUnavailable}},
		{sqlite3.READONLY, []error{records.ErrUnavailable, sqlite.ErrReadOnly}},
		{sqlite3.CORRUPT, []error{records.ErrCorrupt}},
		{sqlite3.NOTADB, []error{records.ErrCorrupt}},
		{sqlite3.CONSTRAINT, nil},
		{sqlite3.ERROR, nil},
	} {
		err := sqlite.Translate(t.Context(), "do", c.code)
		if !errors.Is(err, c.code) {
			t.Errorf("%v: the driver's error is lost: %v", c.code, err)
		}
		for _, kind := range kinds {
			if wanted := slices.Contains(c.want, kind); errors.Is(err, kind) != wanted {
				t.Errorf("%v: is %q: %t, want %t", c.code, kind, !wanted, wanted)
			}
		}
	}
}

// TestDamage: what cannot be read back is said to be corrupt, whoever asks.
func TestDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]string{
		"headers that do not parse": `UPDATE records SET headers = x'ff'`,
		"an executor id cut short":  `UPDATE records SET executor_id = x'01'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, sqlite.Config{})
			a := n.register(records.Registration{})
			r := reservation(a.ID)
			n.finalizes(r.ID, n.reserved(r).Fence())
			if err := sqlite.Exec(t.Context(), sqlite.Config{Path: n.path, Cluster: "test"}, damage); err != nil {
				t.Fatal(err)
			}
			if _, err := n.Load(t.Context(), r.ID); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("load = %v, want ErrCorrupt", err)
			}
			r.Attempt = records.NewToken()
			if _, err := n.Reserve(t.Context(), r); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("reserve = %v, want ErrCorrupt", err)
			}
			claim := records.UnknownClaim{ID: r.ID, Epoch: 1, By: a.ID, Attempt: records.NewToken()}
			if _, err := n.ClaimUnknown(t.Context(), claim); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("claim unknown = %v, want ErrCorrupt", err)
			}
			if _, err := n.List(t.Context(), records.Filter{Limit: 10}); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("list = %v, want ErrCorrupt", err)
			}
			if _, err := n.Store.Purge(t.Context(), 10); err != nil {
				t.Errorf("purge beside it: %v", err)
			}
			if err := n.MarkUnknown(t.Context(), r.ID, records.Fence{}, time.Hour); !errors.Is(err, records.ErrFenced) {
				t.Errorf("a write under no fence = %v, want ErrFenced", err)
			}
		})
	}
}
