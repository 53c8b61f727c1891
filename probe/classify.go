package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Reasons for a verdict, found in [Observation.Err] with [errors.Is].
var (
	// ErrNoConnection: no connection came about.
	ErrNoConnection = errors.New("no connection")
	// ErrNoAnswer: a connection, but not one complete answer on it in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrNotOurs: an answer that is not, or not for this question, from our
	// handler.
	ErrNotOurs = errors.New("not an answer to this question")
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("probe client is closed")
)

// failure is an error that carries its verdict.
type failure struct {
	verdict Verdict
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(v Verdict, kind, err error) *failure {
	return &failure{verdict: v, err: fmt.Errorf("%w: %w", kind, err)}
}

// maxAddresses bounds how many addresses of one name are tried.
const maxAddresses = 8

// dial connects to the first address of the host that lets it. Errors are
// failures.
//
// It resolves by itself because [net.Dialer] reports only its first error: of
// a name with two addresses, one refusing and one silent, that might be the
// refusal, and an executor would count as down that is merely slow.
func (c *Client) dial(ctx context.Context, network, hostport string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Dial)
	defer cancel()
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return nil, failed(Unknown, ErrNoConnection, err)
	}
	addrs, f := c.resolve(ctx, host)
	if f != nil {
		return nil, f
	}
	deadline, _ := ctx.Deadline()
	d := net.Dialer{ControlContext: c.allow.control, FallbackDelay: -1}
	verdict, errs := Down, []error(nil)
	for i, a := range addrs {
		// Each address gets an equal part of the time that is left.
		share := time.Until(deadline) / time.Duration(len(addrs)-i)
		one, cancel := context.WithTimeout(ctx, share)
		conn, err := d.DialContext(one, network, net.JoinHostPort(a.String(), port))
		cancel()
		if err == nil {
			if n, ok := ctx.Value(dialedKey{}).(*dialed); ok {
				n.sole = len(addrs) == 1
			}
			return conn, nil
		}
		verdict = weaker(verdict, ofDial(err))
		errs = append(errs, err)
	}
	return nil, failed(verdict, ErrNoConnection, errors.Join(errs...))
}

// resolve lists the addresses of a host: of a literal, itself.
func (c *Client) resolve(ctx context.Context, host string) ([]netip.Addr, *failure) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	addrs, err := c.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		// A name that is gone was withdrawn, as Kubernetes does for a pod
		// that drains. A name server that fails says nothing about anybody.
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			return nil, failed(Silent, ErrNoConnection, err)
		}
		return nil, failed(Unknown, ErrNoConnection, err)
	}
	if len(addrs) == 0 {
		return nil, failed(Silent, ErrNoConnection, fmt.Errorf("lookup %s: no addresses", host))
	}
	return addrs[:min(len(addrs), maxAddresses)], nil
}

// ofDial is the verdict of one failed connect.
func ofDial(err error) Verdict {
	switch {
	case errors.Is(err, ErrForbidden):
		return Unknown
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return Down
	case isTimeout(err), isAnyOf(err, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN):
		return Silent
	}
	return Unknown // our own trouble: no descriptors, no ports, a local firewall
}

// weaker is the verdict of two addresses together: what the less telling of
// them allows.
func weaker(a, b Verdict) Verdict {
	switch {
	case a == Unknown || b == Unknown:
		return Unknown
	case a == Silent || b == Silent:
		return Silent
	}
	return Down
}

// dialed travels in a context to the dial and tells what came of it: whether
// the address was the only one of its name. A reset by one of several says
// nothing about the others.
type (
	dialed    struct{ sole bool }
	dialedKey struct{}
)

// ofExchange is the verdict of a connection on which no complete answer came:
// the request or its answer failed with err, after answered, that is, the
// first byte of an answer.
func ofExchange(err error, answered, sole bool) Verdict {
	switch {
	case answered:
		return Unknown // cut, reset or stalled in the middle
	case isTimeout(err):
		return Silent
	case sole && errors.Is(err, syscall.ECONNRESET):
		return Down
	}
	return Unknown // closed without a word, or not HTTP
}

func isTimeout(err error) bool {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

func isAnyOf(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
