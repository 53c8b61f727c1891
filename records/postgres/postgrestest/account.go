//go:build unix

package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is whom the server runs as. PostgreSQL refuses to run as root, so a
// test that is root lends it another account.
type account struct {
	other    bool // not the test's own
	uid, gid int
}

// chooseAccount returns the test's own account or, for root, the first of
// those that exist on most machines.
func chooseAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return account{other: true, uid: uid, gid: gid}, nil
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as: " +
		"run the tests as another user, or `useradd --system postgres`")
}

// attributes makes a child run as the account.
func (a account) attributes() *syscall.SysProcAttr {
	if !a.other {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid), Groups: []uint32{uint32(a.gid)}}}
}

// makeDir makes a directory that the account owns and can reach. A socket's
// path must be short, so it does not lie deep.
func (a account) makeDir() (string, error) {
	for _, parent := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if a.other && !openToAll(parent) || len(parent) > 60 {
			continue
		}
		dir, err := os.MkdirTemp(parent, "probate-pg-")
		if err != nil {
			continue
		}
		if err := os.Chown(dir, a.uid, a.gid); err != nil {
			return "", errors.Join(fmt.Errorf("make cluster directory: %w", err), os.Remove(dir))
		}
		return dir, nil
	}
	return "", fmt.Errorf("no temporary directory that user %d can enter: set TMPDIR to one", a.uid)
}

// openToAll reports whether every account may pass through path.
func openToAll(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
		path = filepath.Dir(path)
	}
}
