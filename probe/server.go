package probe

import (
	"crypto/tls"
	"net/http"
	"time"
)

// Server returns a server for the internal listener: HTTP/1.1 and HTTP/2, the
// latter without TLS by prior knowledge. With tc it serves TLS and is started
// by ServeTLS with empty file names; for mTLS, tc demands client certificates.
//
// No limit of it cuts a long-poll of [MaxWait].
func Server(h http.Handler, tc *tls.Config) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(tc != nil)
	p.SetUnencryptedHTTP2(tc == nil)
	return &http.Server{
		Handler:           h,
		TLSConfig:         tc.Clone(),
		Protocols:         &p,
		ReadHeaderTimeout: 5 * time.Second,
		// Not ReadTimeout: it would end the context of a long-poll on HTTP/1.1
		// (the handler bounds how long a question may take to arrive).
		WriteTimeout:   MaxWait + 30*time.Second,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 16 << 10,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 16384, // all watches of a peer share a connection
			SendPingTimeout:      10 * time.Second,
			PingTimeout:          5 * time.Second, // polls of a vanished peer end
		},
	}
}
