package probe

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestVerdictOfADial(t *testing.T) {
	t.Parallel()
	connect := func(n syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", n)}
	}
	for _, row := range []struct {
		err  error
		want Verdict
	}{
		{connect(syscall.ECONNREFUSED), Down},
		{connect(syscall.EHOSTUNREACH), Silent},
		{connect(syscall.ENETUNREACH), Silent},
		{connect(syscall.ETIMEDOUT), Silent},
		{&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, Silent},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, Silent},
		{&net.OpError{Op: "dial", Err: ErrForbidden}, Unknown},
		{connect(syscall.EMFILE), Unknown},
		{connect(syscall.EADDRNOTAVAIL), Unknown},
		{connect(syscall.EPERM), Unknown},
		{errors.New("anything else"), Unknown},
	} {
		if got := ofDial(row.err); got != row.want {
			t.Errorf("%v: got %v, want %v", row.err, got, row.want)
		}
	}
}

func TestWeakerVerdict(t *testing.T) {
	t.Parallel()
	for _, row := range [][3]Verdict{
		{Down, Down, Down},
		{Down, Silent, Silent},
		{Silent, Silent, Silent},
		{Down, Unknown, Unknown},
		{Silent, Unknown, Unknown},
	} {
		if weaker(row[0], row[1]) != row[2] || weaker(row[1], row[0]) != row[2] {
			t.Errorf("%v and %v: want %v", row[0], row[1], row[2])
		}
	}
}

func TestVerdictOfAnExchange(t *testing.T) {
	t.Parallel()
	reset := &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	for _, row := range []struct {
		err            error
		answered, sole bool
		want           Verdict
	}{
		{reset, false, true, Down},
		{reset, false, false, Unknown}, // other addresses of the name were not asked
		{reset, true, true, Unknown},
		{errHeaderTimeout, false, true, Silent},
		{errBodyTimeout, true, true, Unknown},
		{context.DeadlineExceeded, false, true, Silent},
		{errors.New("EOF"), false, true, Unknown},
	} {
		if got := ofExchange(row.err, row.answered, row.sole); got != row.want {
			t.Errorf("%v: got %v, want %v", row, got, row.want)
		}
	}
}

func TestVerdictNames(t *testing.T) {
	t.Parallel()
	var zero Verdict
	if zero != Unknown || zero.Signed() {
		t.Error("the zero verdict is not Unknown")
	}
	for v, name := range verdictNames {
		got, ok := parseVerdict(Verdict(v).String())
		if name == "" || !ok || got != Verdict(v) {
			t.Errorf("verdict %d: %q, %v", v, name, got)
		}
		if signed := Verdict(v) == Running || Verdict(v) == NotRunning; Verdict(v).Signed() != signed {
			t.Errorf("%v: signed %v", Verdict(v), !signed)
		}
	}
	if got := Verdict(99).String(); got != "verdict(99)" {
		t.Error(got)
	}
	if _, ok := parseVerdict(""); ok {
		t.Error("nothing is no verdict")
	}
}

func TestPinsAreBounded(t *testing.T) {
	t.Parallel()
	var p pins
	key, other := make(ed25519.PublicKey, ed25519.PublicKeySize), ed25519.PublicKey(make([]byte, ed25519.PublicKeySize))
	other[0] = 1
	id := func(i int) records.ExecutorID { return records.ExecutorID{byte(i), byte(i >> 8)} }
	for i := range maxPins + 10 {
		if !p.agree(id(i), key) {
			t.Fatal("the first sight is believed")
		}
	}
	if len(p.keys) != maxPins || len(p.order) != maxPins {
		t.Errorf("%d keys, %d in order", len(p.keys), len(p.order))
	}
	if p.agree(id(maxPins), other) || !p.agree(id(maxPins), key) {
		t.Error("the pinned key is the key")
	}
	if p.agree(id(1), nil) {
		t.Error("no key is no key")
	}
}
