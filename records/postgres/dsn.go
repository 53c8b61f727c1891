package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lib/pq"

	"github.com/probate-dev/probate/records"
)

// connectTimeout bounds the making of one connection to one host of the DSN.
// A host that is gone must cost less than a lease.
const connectTimeout = 2 * time.Second

// parseDSN reads a libpq URL or keyword string. Parameters that begin with x-
// are golang-migrate's, and a server would refuse them: they are returned
// apart, so that one string serves our binary and the stock tool.
func parseDSN(dsn string) (pq.Config, map[string]string, error) {
	c, err := pq.NewConfig(dsn)
	if err != nil {
		// The driver's message can quote the password, so it is not passed on.
		return pq.Config{}, nil, &records.InvalidError{Field: "dsn", Reason: "want a libpq URL (postgres://…) or keyword string"}
	}
	own := map[string]string{}
	for name, value := range c.Runtime {
		if strings.HasPrefix(name, "x-") {
			own[name] = value
			delete(c.Runtime, name)
		}
	}
	if c.ConnectTimeout == 0 {
		c.ConnectTimeout = connectTimeout
	}
	if c.TargetSessionAttrs == "" {
		// A standby of a list, or one that was a primary, is passed over.
		c.TargetSessionAttrs = pq.TargetSessionAttrsReadWrite
	}
	if c.ApplicationName == "" && c.FallbackApplicationName == "" {
		c.ApplicationName = "probate"
	}
	return c, own, nil
}

// connector makes connections whose reads and writes each end after silence.
// Zero waits for ever. Each is shown to dialled, if that is not nil.
func connector(c pq.Config, silence time.Duration, dialled func(net.Conn)) (*pq.Connector, error) {
	made, err := pq.NewConnectorConfig(c)
	if err != nil {
		return nil, fmt.Errorf("make connector: %w", err)
	}
	made.Dialer(dialer{silence, dialled})
	return made, nil
}

// dialer gives every connection a limit on silence. The server ends a slow
// statement itself; this is for a server, or a network, that says nothing at
// all: without it a frozen link would hold its caller until the kernel gave
// up, a quarter of an hour later.
type dialer struct {
	silence time.Duration
	dialled func(net.Conn)
}

// Dial implements pq.Dialer.
func (d dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialTimeout implements pq.Dialer.
func (d dialer) DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.DialContext(ctx, network, address)
}

// DialContext implements pq.DialerContext.
func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.dialled != nil {
		d.dialled(c)
	}
	return &impatient{Conn: c, silence: d.silence}, nil
}

// impatient keeps the deadline of its connection ahead by one to two times the
// silence it bears, except while the driver has set one itself. Moving it with
// every read and write would wake the poller each time. The driver reads only
// when it waits for an answer, so what passes while idle does no harm.
type impatient struct {
	net.Conn
	silence  time.Duration
	deadline time.Time
	theirs   bool // the driver's own deadline is set
}

func (c *impatient) renew() error {
	if c.silence == 0 || c.theirs {
		return nil
	}
	now := time.Now()
	if c.deadline.Sub(now) >= c.silence {
		return nil
	}
	c.deadline = now.Add(2 * c.silence)
	return c.Conn.SetDeadline(c.deadline)
}

func (c *impatient) Read(b []byte) (int, error) {
	if err := c.renew(); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

func (c *impatient) Write(b []byte) (int, error) {
	if err := c.renew(); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetDeadline is how the driver sets its own, and with the zero time drops it.
func (c *impatient) SetDeadline(t time.Time) error {
	c.theirs, c.deadline = !t.IsZero(), time.Time{}
	return c.Conn.SetDeadline(t)
}
