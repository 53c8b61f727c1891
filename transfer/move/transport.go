package move

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

// NewTransport returns what HTTP and S3 ends dial with. It uses no proxy,
// whatever the environment says, asks for no compression, and, if allow is not
// nil, dials only addresses for which it returns nil. allow sees the address
// after the name was resolved, so a name that changes its mind is caught too.
//
// It keeps idle connections, which belong to the caller: one transport serves
// all copies, and [http.Transport.CloseIdleConnections] ends it.
func NewTransport(allow func(netip.AddrPort) error) *http.Transport {
	d := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	if allow != nil {
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return fatal("", ErrAddress, err)
			}
			if err := allow(netip.AddrPortFrom(a.Addr().Unmap(), a.Port())); err != nil {
				return fatal("", ErrAddress, err)
			}
			return nil
		}
	}
	return &http.Transport{
		Proxy:                 nil,
		DialContext:           d.DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        16 << 10,
	}
}

// headerOf is what a request is sent with: h, and who we are if h does not say.
func headerOf(h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = make(http.Header)
	}
	if h.Get("User-Agent") == "" {
		h.Set("User-Agent", "probate")
	}
	return h
}

// parseURL refuses what cannot be fetched. Errors do not repeat the URL, whose
// query may be a signature.
func parseURL(at End, raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fatal(at, ErrRefused, errors.New("malformed URL"))
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fatal(at, ErrRefused, errors.New("neither an http nor an https URL"))
	case u.User != nil:
		return nil, fatal(at, ErrRefused, errors.New("URL with credentials in it"))
	}
	return u, nil
}

// ioFault says what an error of a round trip means: it may pass, unless it is
// a refusal of our own.
func ioFault(ctx context.Context, at End, err error) error {
	if cause := because(ctx, err); ctx.Err() != nil {
		return transient(at, ErrUnavailable, cause)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if f, ok := errors.AsType[*Fault](err); ok {
		// Made below, where nobody knows which end it is.
		return &Fault{End: at, Kind: f.Kind, Transient: f.Transient, Err: f.Err}
	}
	return transient(at, ErrUnavailable, err)
}
