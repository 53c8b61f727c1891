package move

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// FileSource is a regular file below a root.
type FileSource struct {
	// Root is a folder of this machine. Path is relative to it, with the
	// system's separator, and does not lead out: not by "..", not by being
	// absolute, not through a symlink.
	Root, Path string
}

// Open implements [Source]. The validator is size and time of modification. A
// file that is written to while it is read ends with [ErrChanged].
func (s FileSource) Open(_ context.Context, from int64, validator string) (*Body, error) {
	root, err := openRoot(AtSource, s.Root, s.Path)
	if err != nil {
		return nil, err
	}
	defer shut(root)
	// Not to block in opening a named pipe that has no writer.
	f, err := root.OpenFile(s.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fileFault(AtSource, err)
	}
	b, err := fileBody(f, from, validator)
	if err != nil {
		shut(f)
		return nil, err
	}
	return b, nil
}

func fileBody(f *os.File, from int64, validator string) (*Body, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fileFault(AtSource, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fatal(AtSource, ErrNotRegular, nil)
	}
	size, is := info.Size(), version(info)
	if is != validator || from > size {
		from = 0
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, fileFault(AtSource, err)
	}
	return &Body{
		ReadCloser: &fileReader{File: f, left: size - from, version: is},
		From:       from, Length: size, Validator: is,
	}, nil
}

func version(i os.FileInfo) string { return fmt.Sprintf("%d-%d", i.Size(), i.ModTime().UnixNano()) }

// fileReader reads what the file had when it was opened, and at the end looks
// whether it still has.
type fileReader struct {
	*os.File

	left    int64
	version string
}

// Read implements io.Reader.
func (r *fileReader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, r.end()
	}
	n, err := r.File.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	switch {
	case errors.Is(err, io.EOF):
		err = r.end()
	case err != nil:
		err = fileFault(AtSource, err)
	}
	return n, err
}

func (r *fileReader) end() error {
	info, err := r.Stat()
	switch {
	case err != nil:
		return fileFault(AtSource, err)
	case version(info) != r.version:
		return transient(AtSource, ErrChanged, nil)
	default:
		return io.EOF
	}
}
