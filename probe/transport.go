package probe

import (
	"net/http"
	"time"
)

// Transport makes a transport for what else nodes ask each other: under the
// same limits on whom it dials, and how long that may take, as probes. The
// caller closes its idle connections.
func (c *Client) Transport() *http.Transport {
	var http1 http.Protocols
	http1.SetHTTP1(true)
	t := c.transport(&http1)
	t.MaxIdleConnsPerHost = 2
	t.IdleConnTimeout = 30 * time.Second
	return t
}

// Authorize puts the token that the fleet shares into a request, if there is
// one.
func (c *Client) Authorize(r *http.Request) {
	if c.cfg.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.cfg.Token)
	}
}

// Guard lets through only who has the fleet's token, as with probes.
func (h *Handler) Guard(next http.Handler) http.Handler { return h.authorized(next) }
