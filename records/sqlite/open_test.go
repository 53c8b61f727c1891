package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sqlite"
)

func TestOpen(t *testing.T) {
	t.Parallel()

	t.Run("RefusesBadSetUpsByName", func(t *testing.T) {
		t.Parallel()
		file := func(content string, mode fs.FileMode) string {
			path := newPath(t)
			if err := os.WriteFile(path, []byte(content), mode); err != nil {
				t.Fatal(err)
			}
			return path
		}
		cases := []struct {
			name string
			c    sqlite.Config
			want error
		}{
			{"no path", sqlite.Config{Cluster: "test"}, records.ErrInvalid},
			{"no cluster", sqlite.Config{Path: newPath(t)}, records.ErrInvalid},
			{"a cluster with NUL", sqlite.Config{Path: newPath(t), Cluster: "a\x00b"}, records.ErrInvalid},
			{"negative grace", sqlite.Config{Path: newPath(t), Cluster: "test", Grace: -1}, records.ErrInvalid},
			{"no folder", sqlite.Config{Path: filepath.Join(t.TempDir(), "none", "probate.db"), Cluster: "test"}, records.ErrInvalid},
			{"no folder, as the system says it", sqlite.Config{Path: filepath.Join(t.TempDir(), "none", "probate.db"), Cluster: "test"}, fs.ErrNotExist},
			{"a folder", sqlite.Config{Path: t.TempDir(), Cluster: "test"}, records.ErrInvalid},
			{"a read-only file", sqlite.Config{Path: file("", 0o400), Cluster: "test"}, sqlite.ErrReadOnly},
			{"not a database", sqlite.Config{Path: file("Dear diary, today I was taken for a database.", 0o600), Cluster: "test"}, records.ErrCorrupt},
		}
		for _, c := range cases {
			s, err := sqlite.Open(t.Context(), c.c)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			if s != nil {
				t.Errorf("%s: a store was returned", c.name)
			}
		}
	})

	t.Run("MakesFilesForTheirOwnerOnly", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		s := open(t, sqlite.Config{Path: path})
		a := register(t, s, records.Registration{})
		reserve(t, s, a.ID)
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != 0o600 {
				t.Errorf("mode of probate.db%s is %o, want 600", suffix, got)
			}
		}
	})

	t.Run("TakesPathsAsTheyAre", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "50% of #1?mode=memory&.db")
		open(t, sqlite.Config{Path: path})
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("nothing was written to the path: %v", err)
		}
	})

	t.Run("RefusesAnotherCluster", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		open(t, sqlite.Config{Path: path, Cluster: "ours"})
		if _, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "theirs"}); !errors.Is(err, records.ErrWrongCluster) {
			t.Errorf("open = %v, want ErrWrongCluster", err)
		}
		open(t, sqlite.Config{Path: path, Cluster: "ours"})
	})

	t.Run("KeepsWhatWasWritten", func(t *testing.T) {
		t.Parallel()
		path := newPath(t)
		s := open(t, sqlite.Config{Path: path})
		a := register(t, s, records.Registration{})
		r := reserve(t, s, a.ID)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		held, err := open(t, sqlite.Config{Path: path}).Load(t.Context(), r.ID)
		if err != nil || held.Record.Fence() != r.Fence() || held.Executor.ID != a.ID {
			t.Errorf("after opening again: %+v, %v", held, err)
		}
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	s := open(t, sqlite.Config{})
	a := register(t, s, records.Registration{})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if _, err := s.Reserve(t.Context(), reservation(a.ID)); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("reserve after close = %v, want ErrUnavailable", err)
	}
	if _, err := s.LoadExecutor(t.Context(), a.ID); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("load after close = %v, want ErrUnavailable", err)
	}
	if _, err := s.ListExecutors(t.Context()); !errors.Is(err, records.ErrUnavailable) {
		t.Errorf("list after close = %v, want ErrUnavailable", err)
	}
}
