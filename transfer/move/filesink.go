package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FileSink is a file below a root.
//
// The bytes go to a hidden file in the folder of the final name, are synced,
// and renamed; then the folder is synced. A file that has the name is
// replaced at that moment. The hidden file is named by flow and epoch. Who
// begins renames those of older epochs before it writes a byte, so an older
// owner has nothing left to rename to the final name: the commit is fenced
// also against an owner that was paused after its last look at the store.
//
// To resume is to copy what the older epoch wrote, as far as the checkpoint
// goes and if its hash agrees, into a file of one's own: the older owner, if
// it still has its file open, writes into the void.
type FileSink struct {
	// Root and Path are as in [FileSource]. Missing folders below the root are
	// made.
	Root, Path string
	// Mode of the file, less the umask. Default 0640.
	Mode os.FileMode
}

// Begin implements [Sink].
func (s FileSink) Begin(ctx context.Context, start Start) (Part, error) {
	root, dir, err := s.open(true)
	if err != nil {
		return nil, err
	}
	p := &filePart{root: root, dir: dir, path: s.Path, name: nameOf(start.Identity)}
	if err := p.begin(ctx, s.mode(), start); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// Discard implements [Sink].
func (s FileSink) Discard(_ context.Context, id Identity, _ string) error {
	root, dir, err := s.open(false)
	switch {
	case errors.Is(err, ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	defer shut(root, dir)
	found, err := parts(dir, family(id.Flow))
	if err != nil {
		return err
	}
	var faults []error
	for _, n := range found {
		if n.epoch <= id.Epoch {
			faults = append(faults, remove(dir, n.String()))
		}
	}
	return errors.Join(faults...)
}

func (s FileSink) mode() os.FileMode {
	if s.Mode == 0 {
		return 0o640
	}
	return s.Mode
}

// open opens the root and, below it, the folder of the final name, which stays
// the same folder whatever becomes of its name. It makes that folder if it is
// told to.
func (s FileSink) open(missing bool) (root, dir *os.Root, err error) {
	root, err = openRoot(AtSink, s.Root, s.Path)
	if err != nil {
		return nil, nil, err
	}
	if isPartName(filepath.Base(s.Path)) {
		shut(root)
		return nil, nil, fatal(AtSink, ErrRefused, errors.New("the name is kept for what is being written"))
	}
	folder := filepath.Dir(s.Path)
	if missing {
		err = root.MkdirAll(folder, 0o750)
	}
	if err == nil {
		dir, err = root.OpenRoot(folder)
	}
	if err != nil {
		shut(root)
		return nil, nil, fileFault(AtSink, err)
	}
	if info, err := dir.Lstat(filepath.Base(s.Path)); err == nil && info.IsDir() {
		shut(root, dir)
		return nil, nil, fatal(AtSink, ErrNotRegular, nil)
	}
	return root, dir, nil
}

// filePart is a hidden file.
type filePart struct {
	root, dir *os.Root
	path      string // below root
	name      partName
	file      *os.File
	offset    int64
	pushed    int64 // up to here the disc was asked to begin
	synced    int64 // up to here it is done
}

// How many bytes are given to the disc at a time, long before the sync. It took
// the copy of 1 GiB from 0.8 to 1.0 of curl's pace to 0.9 to 1.2.
const writeBackEvery = 8 << 20

// begin makes the file, and only then looks who else is there: of two owners
// that begin at the same moment, at least the second one sees the other.
func (p *filePart) begin(ctx context.Context, mode os.FileMode, start Start) (err error) {
	p.file, err = p.dir.OpenFile(p.name.String(), os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return fileFault(AtSink, err)
	}
	older, err := p.fence()
	if err != nil {
		return err
	}
	if start.Resume != nil && start.Resume.Offset > 0 {
		if err := p.adopt(ctx, start, older); err != nil {
			return err
		}
	}
	for _, n := range older {
		if err := remove(p.dir, n.String()); err != nil {
			return err
		}
	}
	if err := p.file.Truncate(p.offset); err != nil {
		return fileFault(AtSink, err)
	}
	if _, err := p.file.Seek(p.offset, io.SeekStart); err != nil {
		return fileFault(AtSink, err)
	}
	return nil
}

// fence takes the parts of older epochs from their owners, and lists them.
func (p *filePart) fence() ([]partName, error) {
	found, err := parts(p.dir, p.name.family)
	if err != nil {
		return nil, err
	}
	if len(found) > 0 && found[0].epoch > p.name.epoch {
		return nil, errors.Join(fatal(AtSink, ErrSuperseded, nil), remove(p.dir, p.name.String()))
	}
	var older []partName
	for _, n := range found {
		switch {
		case n == p.name:
			continue
		case n.suffix == suffixPart:
			err := p.dir.Rename(n.String(), n.old().String())
			if errors.Is(err, fs.ErrNotExist) {
				continue // committed or given up just now
			}
			if err != nil {
				return nil, fileFault(AtSink, err)
			}
		}
		older = append(older, n.old())
	}
	return older, nil
}

// adopt looks for the bytes of the checkpoint: in this file, if it is this
// epoch that goes on, or in one of an older epoch. If they are nowhere the part
// begins at zero.
func (p *filePart) adopt(ctx context.Context, start Start, older []partName) error {
	found, err := holds(ctx, start, p.file, io.Discard)
	if err != nil || found {
		p.adopted(start, found)
		return err
	}
	for _, n := range older {
		if found, err = p.copyFrom(ctx, n, start); err != nil || found {
			p.adopted(start, found)
			return err
		}
	}
	return nil
}

func (p *filePart) adopted(start Start, found bool) {
	if found {
		p.offset = start.Resume.Offset
	}
}

func (p *filePart) copyFrom(ctx context.Context, n partName, start Start) (bool, error) {
	f, err := p.dir.Open(n.String())
	if err != nil {
		return false, fileFault(AtSink, err)
	}
	defer shut(f)
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return false, fileFault(AtSink, err)
	}
	return holds(ctx, start, f, p.file)
}

// holds reports whether f begins with the bytes of the checkpoint, and copies
// them to w while it looks.
func holds(ctx context.Context, start Start, f *os.File, w io.Writer) (bool, error) {
	info, err := f.Stat()
	if err != nil {
		return false, fileFault(AtSink, err)
	}
	if info.Size() < start.Resume.Offset {
		return false, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return false, fileFault(AtSink, err)
	}
	h, b := sha256.New(), make([]byte, bufferSize)
	for left := start.Resume.Offset; left > 0; {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		n, err := io.ReadFull(f, b[:min(left, bufferSize)])
		if err != nil {
			return false, fileFault(AtSink, err)
		}
		h.Write(b[:n])
		if _, err := w.Write(b[:n]); err != nil {
			return false, fileFault(AtSink, err)
		}
		start.moved()
		left -= int64(n)
	}
	return start.Resume.holds(h), nil
}

// Offset implements [Part].
func (p *filePart) Offset() int64 { return p.offset }

// Room implements [Part]: a file takes any number of bytes.
func (p *filePart) Room() int64 { return -1 }

// Write implements [Part].
func (p *filePart) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.offset += int64(n)
	if err == nil && p.offset-p.pushed >= writeBackEvery {
		writeBack(p.file, p.pushed, p.offset-p.pushed)
		p.pushed = p.offset
	}
	return n, fileFault(AtSink, err)
}

// Checkpoint implements [Part]. A later epoch finds the file by its name, so
// there is no token.
func (p *filePart) Checkpoint() (Mark, error) {
	if p.synced != p.offset {
		if err := p.file.Sync(); err != nil {
			return Mark{}, fileFault(AtSink, err)
		}
		p.synced = p.offset
	}
	return Mark{Offset: p.offset}, nil
}

// Seal implements [Part].
func (p *filePart) Seal() error {
	_, err := p.Checkpoint()
	return err
}

// Commit implements [Part].
func (p *filePart) Commit(context.Context) error {
	if err := p.commit(); err != nil {
		return err
	}
	p.close()
	return nil
}

func (p *filePart) commit() error {
	found, err := parts(p.dir, p.name.family)
	if err != nil {
		return err
	}
	if len(found) > 0 && found[0].epoch > p.name.epoch {
		return fatal(AtSink, ErrSuperseded, nil)
	}
	err = p.dir.Rename(p.name.String(), filepath.Base(p.path))
	if errors.Is(err, fs.ErrNotExist) {
		return fatal(AtSink, ErrSuperseded, err)
	}
	if err != nil {
		return fileFault(AtSink, err)
	}
	return p.syncFolders()
}

// syncFolders makes the new name durable, and those of the folders above it,
// which may be as new.
func (p *filePart) syncFolders() error {
	for folder := filepath.Dir(p.path); ; folder = filepath.Dir(folder) {
		d, err := p.root.Open(folder)
		if err != nil {
			return fileFault(AtSink, err)
		}
		err = d.Sync()
		shut(d)
		if err != nil {
			return fileFault(AtSink, err)
		}
		if folder == "." {
			return nil
		}
	}
}

// Abort implements [Part].
func (p *filePart) Abort(context.Context) error {
	shut(p.file)
	defer p.close()
	return remove(p.dir, p.name.String())
}

// Keep implements [Part].
func (p *filePart) Keep() error {
	p.close()
	return nil
}

func (p *filePart) close() {
	if p.file != nil {
		shut(p.file)
	}
	shut(p.dir, p.root)
}

// remove unlinks a file that may be gone already.
func remove(dir *os.Root, name string) error {
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fileFault(AtSink, err)
	}
	return nil
}
