package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// outside is the way to services that are asked something: keys,
// authorization, reconciling. It follows no redirect, since who answers was
// chosen by the configuration.
type outside struct {
	client    *http.Client
	transport *http.Transport
	log       *slog.Logger
}

func newOutside(log *slog.Logger) *outside {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true, // bytes as they are
	}
	return &outside{
		log: log, transport: transport,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

func (o *outside) warn(ctx context.Context, msg string, args ...any) {
	o.log.WarnContext(ctx, msg, args...) //nolint:sloglint // the message is a constant at every caller
}

// do sends a request and reads the whole answer, up to limit bytes.
func (o *outside) do(req *http.Request, limit int64) (reply, error) {
	resp, err := o.client.Do(req)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // the URL can hold a key, and errors are logged
		}
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return reply{}, fmt.Errorf("read answer: %w", err)
	}
	if int64(len(body)) > limit {
		body, err = body[:limit], errTooLarge
	}
	return reply{resp.StatusCode, resp.Header, body}, err
}

// reply is an answer that was read.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// errTooLarge: an answer has more bytes than it may; the reply has the first
// of them.
var errTooLarge = errors.New("answer is too large")

// fetch gets a document.
func (o *outside) fetch(ctx context.Context, from string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	got, err := o.do(req, limit)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", from, err)
	}
	if got.status != http.StatusOK {
		return nil, fmt.Errorf("get %s: status %d", from, got.status)
	}
	return got.body, nil
}
