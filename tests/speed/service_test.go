//go:build unix

package speed_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// receipt is what the service answers.
const receipt = `{"id":"pay_0198c5f77a347c1e9d1b3d0d8d1c2b11","amount":1250,"currency":"EUR","status":"succeeded",` +
	`"source":"card_42","reference":"order 7 of 2026","created":"2026-03-02T10:15:30Z","captured":true}`

// pay is a small service: what it would do is not what is measured here.
func pay(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // it came whole, or the answer goes nowhere
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Location", "/payments/pay_0198c5f77a347c1e9d1b3d0d8d1c2b11")
	h.Set("Etag", `"5f2b8c0e"`)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, receipt)
}

// listen serves a handler on loopback and returns its host:port.
func listen(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
