// Package api is everything a client sees over HTTP: it puts requests that
// carry an Idempotency-Key under the coordinator, in front of a Go handler
// ([API.Middleware]) or of another service ([API] itself, the gateway).
//
// # Promises
//
// Whatever is wrong with a keyed request (its key, realm, principal, size) is
// answered before the coordinator is asked. A handler runs detached from its
// client: one that hangs up cancels nothing. Its first caller gets every byte
// of its response, and gets a response that can be replayed only once it is
// stored. A duplicate gets the stored response with the same status, headers
// and bytes, marked as a replay, or a problem document that says why not; it
// never gets bytes of another principal, and never what was for one moment or
// one credential only, such as Set-Cookie.
//
// A response that is too large to keep, or that the handler flushes, hijacks
// or unwraps, goes straight to the client, and what is stored then is that it
// was there. A response that was cut is never stored and never ends properly.
//
// What says that this attempt failed, and not the operation (401, 403, 407,
// 408, 419, 425, 429, 503 with Retry-After, 206, 304), frees the key. Other
// server errors, panics and lost connections are what the route has agreed;
// by default nobody knows, and the route's reconciler is asked.
//
// The gateway sends a recorded request once. It sends it again only if not one
// byte of it was written to the connection before, and says that nothing was
// done only then.
//
// Everything else passes through: not buffered, not changed but for what a
// proxy has to change, and without a look at the store.
//
// [Admin] lets operators see and change what stands in the store: nobody
// without a token, nothing without the role for it, no change but at the epoch
// at which its record was seen, and none without a line in the audit that says
// who made it and why. No body is ever shown.
//
// # Not promised
//
// A handler that panics in a goroutine of its own ends its process; then
// another node takes over. Trailers reach the first caller and are not stored.
// To upstreams the gateway speaks HTTP/1.1. A client that is answered 503
// store_unavailable was not executed by this request; another may have been.
//
// # Imports
//
// Packages takeover and records, chi, golang-jwt and jwkset (principals out of
// verified tokens), jcs (RFC 8785), google/uuid, x/net, x/sync. No store, no
// SQL, no probe.
//
// # Reading order
//
// api.go and router.go; middleware.go (a request's way in), exchange.go (its
// execution), answer.go (its way out). Around them: config.go, route.go;
// key.go, fingerprint.go, canonical.go; principal.go, jwt.go, authorize.go;
// capture.go and client.go (a response on its way), headers.go, execution.go
// (what a handler may say), redact.go; problem.go, profile.go; gateway.go, transport.go;
// reconcile.go, inquiry.go, look.go with blanks.go, outside.go. The operators'
// API: admin.go (who may what), admin_records.go, admin_fleet.go, admin_flows.go,
// admin_problem.go, operators.go, principal_name.go; report.go, explain.go and
// views.go, which the command line shares.
package api
