package probe

import (
	"context"
	"syscall"
	"time"

	"github.com/probate-dev/probate/records"
)

// MaxWait is how long one watch may last.
const MaxWait = time.Minute

// Watch asks a about the record and waits, at most wait, for the record to
// leave a's running set: then the answer is [NotRunning]. Still [Running]
// after the wait is an answer too.
//
// All watches of one executor share one HTTP/2 connection. It breaks the
// instant the executor's process dies, and within a second and a half of its
// host vanishing, by pings; then every watch that had begun on it returns
// [Unknown] with Broken set. A watch that could not begin fails as a probe
// does, except that only a refused connection is [Down]: a server that knows
// no HTTP/2 may reset it.
func (c *Client) Watch(ctx context.Context, a records.Executor, id records.ID, epoch int64, wait time.Duration) Observation {
	start := time.Now()
	ctx, leave := c.enter(ctx)
	defer leave()
	q := recordQuestion(a.ID, id, epoch, min(max(wait, 0), MaxWait))
	reply, broken, f := c.askShared(ctx, a.URL, q)
	o := Observation{Asked: a.ID}
	if f == nil {
		o = c.judgeRecord(reply, a, q)
	}
	o = finish(ctx, o, f, start)
	o.Broken = broken && !o.Cancelled
	return o
}

// askShared sends the question on the connection that all watches of the URL
// share. The handler sends the header at once and the body when it knows, so
// the one limit on headers holds for watches too, and a watch has begun when
// its header is here.
func (c *Client) askShared(ctx context.Context, url string, q question) (reply []byte, broken bool, f *failure) {
	scheme, hostport, err := c.allow.target(url)
	if err != nil {
		return nil, false, failed(Unknown, ErrNoConnection, err)
	}
	body := time.Duration(q.body.WaitMS)*time.Millisecond + c.cfg.Header
	for first := true; ; first = false {
		l, f := c.link(ctx, scheme, hostport)
		if f != nil {
			return nil, false, f
		}
		reply, x := c.exchange(ctx, l.conn, url, q, c.cfg.Header, body)
		if x.err == nil {
			return reply, false, x.refused
		}
		dead := l.conn.Err() != nil || isAnyOf(x.err, syscall.ECONNRESET, syscall.EPIPE)
		stale := !x.answered && ctx.Err() == nil && !isTimeout(x.err)
		if dead || stale {
			c.links.drop(l)
		}
		switch {
		case x.begun && dead:
			return nil, true, failed(Unknown, ErrNoAnswer, x.err)
		case stale && first:
			// The connection ended, or took no more, before it took this
			// question. Questions change nothing, so ask on a new one.
		default:
			return nil, false, failed(ofExchange(x.err, x.answered, false), ErrNoAnswer, x.err)
		}
	}
}
