//go:build unix

package move_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/probate-dev/probate/transfer/move"
)

func TestFile(t *testing.T) {
	t.Parallel()

	t.Run("CopiesAnyLength", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{0, 1, 100, 64 << 10, 256 << 10, 256<<10 + 1, 5 << 20} {
			from, to, want := newFile(t), newFile(t), content(n)
			from.write(t, want)
			mustCopy(t, job(from.source(), to.sink()), want)
			to.wantContent(t, want)
			to.wantNames(t, 1)
		}
	})

	t.Run("MakesTheFoldersOfItsName", func(t *testing.T) {
		t.Parallel()
		from, to, want := newFile(t), newFile(t), content(10)
		from.write(t, want)
		to.path = filepath.Join("a", "b", "out")
		mustCopy(t, job(from.source(), to.sink()), want)
		to.wantContent(t, want)
	})

	t.Run("ReplacesWhatHasTheNameOnlyWhenWhole", func(t *testing.T) {
		t.Parallel()
		from, to, old, want := newFile(t), newFile(t), content(10), content(1<<20)
		from.write(t, want)
		to.write(t, old)
		j := job(from.source(), to.sink())
		j.BeforeCommit = func(context.Context) error { to.wantContent(t, old); return nil }
		mustCopy(t, j, want)
		to.wantContent(t, want)
	})

	t.Run("RefusesToLeaveItsRoot", func(t *testing.T) {
		t.Parallel()
		outside := newFile(t)
		outside.write(t, content(10))
		inside := newFile(t)
		inside.write(t, content(20))
		if err := errors.Join(
			os.Symlink(outside.root, filepath.Join(inside.root, "folder")),
			os.Symlink(outside.name(), filepath.Join(inside.root, "link")),
			os.Symlink("../"+filepath.Base(outside.root), filepath.Join(inside.root, "relative")),
		); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			"../" + filepath.Base(outside.root) + "/out", outside.name(), "a/../../x", "..", "", "/",
			"folder/out", "relative/out",
		} {
			wantFault(t, job(move.FileSource{Root: inside.root, Path: path}, newFile(t).sink()), move.AtSource, move.ErrOutsideRoot)
			wantFault(t, job(inside.source(), move.FileSink{Root: inside.root, Path: path}), move.AtSink, move.ErrOutsideRoot)
		}
		wantFault(t, job(move.FileSource{Root: inside.root, Path: "link"}, newFile(t).sink()), move.AtSource, move.ErrOutsideRoot)
		outside.wantContent(t, content(10))
		outside.wantNames(t, 1)
		// A link as the final name is replaced, not followed.
		mustCopy(t, job(inside.source(), move.FileSink{Root: inside.root, Path: "link"}), content(20))
		outside.wantContent(t, content(10))
	})

	t.Run("RefusesWhatIsNotAFile", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		f.write(t, content(10))
		if err := errors.Join(
			os.Mkdir(filepath.Join(f.root, "folder"), 0o700),
			syscall.Mkfifo(filepath.Join(f.root, "pipe"), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"folder", "pipe", "."} {
			wantFault(t, job(move.FileSource{Root: f.root, Path: path}, newFile(t).sink()), move.AtSource, move.ErrNotRegular)
		}
		for _, path := range []string{"folder", ".", filepath.Join("out", "below")} {
			wantFault(t, job(f.source(), move.FileSink{Root: f.root, Path: path}), move.AtSink, move.ErrNotRegular)
		}
	})

	t.Run("SaysWhatIsNotThere", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		wantFault(t, job(f.source(), newFile(t).sink()), move.AtSource, move.ErrNotFound)
		f.write(t, nil)
		wantFault(t, job(f.source(), move.FileSink{Root: filepath.Join(f.root, "none"), Path: "x"}), move.AtSink, move.ErrNotFound)
	})

	t.Run("NoticesThatTheSourceIsWrittenTo", func(t *testing.T) {
		t.Parallel()
		from, to := newFile(t), newFile(t)
		from.write(t, content(4<<20))
		grown := content(6 << 20)
		j := job(from.source(), to.sink())
		first := true
		j.Progress = func(int64) {
			if first {
				first = false
				from.write(t, grown)
			}
		}
		if r := mustCopy(t, j, grown); r.Retries == 0 {
			t.Error("the copy of a changed source was not begun again")
		}
		to.wantContent(t, grown)
	})
}

func TestFileSink(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, f file, epoch int64) move.Part {
		t.Helper()
		p, err := f.sink().Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "flow", Epoch: epoch}, Length: -1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p, "bytes"); err != nil {
			t.Fatal(err)
		}
		return p
	}

	t.Run("RefusesAnOlderEpochToBegin", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		p := begin(t, f, 11)
		if _, err := f.sink().Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "flow", Epoch: 10}}); !errors.Is(err, move.ErrSuperseded) {
			t.Errorf("an older epoch begins with %v", err)
		}
		if err := p.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		f.wantNames(t, 1)
	})

	t.Run("RefusesAnOlderEpochToCommit", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		older := begin(t, f, 10)
		newer := begin(t, f, 11)
		if err := older.Commit(t.Context()); !errors.Is(err, move.ErrSuperseded) {
			t.Errorf("an older epoch commits with %v", err)
		}
		f.wantNames(t, 1) // the newer one's part
		if err := errors.Join(newer.Commit(t.Context()), older.Abort(t.Context())); err != nil {
			t.Error(err)
		}
		f.wantContent(t, []byte("bytes"))
		f.wantNames(t, 1)
	})

	t.Run("RefusesTheNameOfAPart", func(t *testing.T) {
		t.Parallel()
		to := newFile(t)
		part, err := to.sink().Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "one", Epoch: 1}, Length: 1})
		if err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(to.root)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		theirs := move.FileSink{Root: to.root, Path: entries[0].Name()}
		if _, err := theirs.Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "two", Epoch: 1}, Length: 1}); !errors.Is(err, move.ErrRefused) {
			t.Errorf("begin: %v", err)
		}
		if err := errors.Join(part.Seal(), part.Commit(t.Context())); err != nil {
			t.Errorf("the part is spoilt: %v", err)
		}
	})

	t.Run("LeavesOtherFlowsAlone", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		mine := begin(t, f, 10)
		theirs, err := f.sink().Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "other", Epoch: 99}})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.sink().Discard(t.Context(), move.Identity{Flow: "other", Epoch: 98}, ""); err != nil {
			t.Fatal(err)
		}
		f.wantNames(t, 2)
		if err := errors.Join(theirs.Abort(t.Context()), mine.Commit(t.Context())); err != nil {
			t.Fatal(err)
		}
		f.wantNames(t, 1)
	})

	t.Run("DiscardsWhatWasKept", func(t *testing.T) {
		t.Parallel()
		f := newFile(t)
		if err := begin(t, f, 10).Keep(); err != nil {
			t.Fatal(err)
		}
		f.wantNames(t, 1)
		if err := f.sink().Discard(t.Context(), move.Identity{Flow: "flow", Epoch: 10}, ""); err != nil {
			t.Fatal(err)
		}
		f.wantNames(t, 0)
		f.path = filepath.Join("no", "such", "folder")
		if err := f.sink().Discard(t.Context(), move.Identity{Flow: "flow", Epoch: 10}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(f.root, "no")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("to discard made a folder: %v", err)
		}
	})
}
