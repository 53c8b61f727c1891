package move

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A file is reached only through its root: [os.Root] resolves every step below
// it and refuses the one that leads out, also when a folder is exchanged for a
// symlink meanwhile.

// openRoot opens the root of a file that is to be found at path below it.
func openRoot(at End, root, path string) (*os.Root, error) {
	if !filepath.IsLocal(path) {
		return nil, fatal(at, ErrOutsideRoot, nil)
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, fileFault(at, err)
	}
	return r, nil
}

// fileFault says what an error of the file system means. What is not known to
// be for good is taken for I/O that may work the next time.
func fileFault(at End, err error) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	// The name of the file is the caller's; a path of this machine is not for
	// those who read the fault.
	bare := bareError(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fatal(at, ErrNotFound, bare)
	case errors.Is(err, fs.ErrPermission):
		return fatal(at, ErrRefused, bare)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fatal(at, ErrSinkFull, bare)
	case errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return fatal(at, ErrNotRegular, bare)
	case errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return fatal(at, ErrRefused, bare)
	case errors.Is(err, syscall.ELOOP), isPathError(err) && !errors.As(err, &errno):
		// The only errors of os.Root that are not the system's are its own
		// refusals to leave.
		return fatal(at, ErrOutsideRoot, bare)
	default:
		return transient(at, ErrUnavailable, bare)
	}
}

func isPathError(err error) bool {
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	return path || link
}

func bareError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// shut closes what has nothing more to say: what was written is synced by then,
// or to be forgotten.
func shut(cs ...io.Closer) {
	for _, c := range cs {
		c.Close()
	}
}
