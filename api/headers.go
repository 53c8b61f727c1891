package api

import (
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/probate-dev/probate/records"
)

// Headers that an answer is marked with. An upstream's own are dropped: they
// would say of this answer what was true of another.
const (
	headerStatus    = "Idempotency-Status"
	headerExpires   = "Idempotency-Expires"
	headerReplayed  = "Idempotent-Replayed"
	headerApplied   = "Preference-Applied"
	headerEpoch     = "Idempotency-Epoch"     // to the upstream: the fence
	headerOperation = "Idempotency-Operation" // to the upstream: the record's id
	headerDigest    = "Content-Digest"        // RFC 9530, of a body that was not kept
)

// Values of Idempotency-Status.
const (
	statusExecuted   = "executed"
	statusReplayed   = "replayed"
	statusWaited     = "waited"
	statusTakenOver  = "taken-over"
	statusReconciled = "reconciled"
	statusBypassed   = "bypassed"
)

// exposed lets a page of another origin read the marks.
var exposed = strings.Join([]string{headerKey, headerStatus, headerExpires, headerReplayed, "Retry-After"}, ", ")

// marks are what every keyed answer carries besides its own headers.
type marks struct {
	status   string    // value of Idempotency-Status; "": none
	expires  time.Time // zero: not known, or the key is free
	replayed bool
}

// set writes the marks over what stands in h.
func (m marks) set(h http.Header) {
	delete(h, headerReplayed)
	values := [3]string{m.status, "", "true"}
	if m.status != "" {
		h[headerStatus] = values[0:1:1]
	}
	if !m.expires.IsZero() {
		values[1] = m.expires.UTC().Format(http.TimeFormat)
		h[headerExpires] = values[1:2:2]
	}
	if m.replayed {
		h[headerReplayed] = values[2:3:3]
	}
}

// neverStored are headers of one exchange or one moment. Content-Length is
// known from the body.
var neverStored = map[string]bool{
	// One connection's, RFC 9110 7.6.1.
	"Connection": true, "Keep-Alive": true, "Te": true, "Transfer-Encoding": true, "Upgrade": true, "Trailer": true,
	// One moment's, and what lets somebody in.
	"Date": true, "Set-Cookie": true, "Www-Authenticate": true, "Authorization": true,
	"Content-Length": true,
	// Ours.
	headerKey: true, headerStatus: true, headerExpires: true, headerReplayed: true, headerApplied: true,
	"Stripe-Should-Retry": true, "Idempotency-Key-Lifetime": true,
}

// storable is what is kept of a response's headers, by name, the values of one
// name in their order, as net/http sends them. Values that stood in base before the handler ran are
// the surroundings' and not the response's.
func storable(h, base http.Header) []records.Header {
	names := make([]string, 0, len(h))
	count := 0
	named := connectionNamed(h)
	for name, values := range h {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !httpguts.ValidHeaderFieldName(name), neverStored[canonical], strings.HasPrefix(canonical, "Proxy-"), strings.HasPrefix(name, http.TrailerPrefix), slices.Contains(named, canonical):
			continue
		case base != nil && slices.Equal(values, base[name]):
			continue
		}
		names = append(names, name)
		count += len(values)
	}
	for _, trailer := range trailerNames(h) {
		names = slices.DeleteFunc(names, func(name string) bool { return name == trailer })
	}
	slices.Sort(names)
	stored := make([]records.Header, 0, count)
	for _, name := range names {
		for _, v := range h[name] {
			stored = append(stored, records.Header{Name: name, Value: oneLine.Replace(textproto.TrimString(v))})
		}
	}
	return stored
}

// connectionNamed are the headers that Connection says are one connection's.
func connectionNamed(h http.Header) []string { return listed(h["Connection"]) }

// trailerNames are the headers that Trailer announces.
func trailerNames(h http.Header) []string { return listed(h["Trailer"]) }

func listed(lines []string) []string {
	var names []string
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			names = append(names, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// restore writes stored headers over what stands in h.
func restore(h http.Header, stored []records.Header) {
	values := make([]string, len(stored))
	for begin := 0; begin < len(stored); {
		name, end := stored[begin].Name, begin
		for ; end < len(stored) && stored[end].Name == name; end++ {
			values[end] = stored[end].Value
		}
		h[name] = values[begin:end:end]
		begin = end
	}
}

// writeStored answers with a response whose body was kept, once its headers
// are restored. A replay that says nothing of caches must not be kept in one.
func writeStored(w http.ResponseWriter, r *records.Response, replayed bool) {
	h := w.Header()
	if _, says := h["Content-Type"]; !says {
		h["Content-Type"] = nil // or net/http guesses one
	}
	if _, says := h["Cache-Control"]; !says && replayed {
		h["Cache-Control"] = []string{"no-store"}
	}
	if bodyAllowed(r.Status) {
		h["Content-Length"] = []string{strconv.Itoa(len(r.Body))}
	}
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 && bodyAllowed(r.Status) {
		_, _ = w.Write(r.Body) // a client that is gone will ask again
	}
}

// bodyAllowed reports whether a response of this status may have a body,
// RFC 9110 6.4.1.
func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}
