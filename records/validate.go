package records

import "time"

// Validate reports every reason why the reservation could never be stored.
func (r Reservation) Validate() error {
	var faults faults
	faults.checkClaim(r.ID, r.Attempt)
	faults.check(len(r.Realm) <= MaxFieldBytes, "realm", "over 64 KiB")
	faults.check(len(r.Key) <= MaxFieldBytes, "key", "over 64 KiB")
	faults.check(len(r.Operation) <= MaxFieldBytes, "operation", "over 64 KiB")
	faults.check(len(r.Resource) <= MaxFieldBytes, "resource", "over 64 KiB")
	faults.check(len(r.Request) <= MaxRequestBytes, "request", "over 64 MiB")
	return faults.join()
}

// Validate reports every reason why the take-over could never land.
func (t TakeOver) Validate() error {
	var faults faults
	faults.checkClaim(t.ID, t.Attempt)
	return faults.join()
}

// Validate reports every reason why the claim could never land.
func (c UnknownClaim) Validate() error {
	var faults faults
	faults.checkClaim(c.ID, c.Attempt)
	return faults.join()
}

// checkClaim demands a token: two callers without one would be taken for one
// that repeats itself.
func (f *faults) checkClaim(id ID, attempt Token) {
	f.check(id != ID{}, "record id", "missing")
	f.check(attempt != Token{}, "attempt", "missing")
}

// Validate reports every reason why the outcome could never be stored.
func (o Outcome) Validate() error {
	var faults faults
	faults.check(o.Response.Status >= 100 && o.Response.Status <= 599, "status", "want 100 to 599")
	faults.check(headerBytes(o.Response.Headers) <= MaxHeaderBytes, "headers", "over 1 MiB")
	faults.check(len(o.Response.Body) <= MaxBodyBytes, "body", "over 64 MiB")
	faults.add(ValidateRetention(o.Retention))
	return faults.join()
}

// ValidateRetention accepts 0 to ten years.
func ValidateRetention(d time.Duration) error {
	if d < 0 || d > 10*365*24*time.Hour {
		return &InvalidError{Field: "retention", Reason: "want 0 to ten years"}
	}
	return nil
}

// ValidateCluster accepts what a fleet may be called.
func ValidateCluster(s string) error {
	if s == "" || len(s) > 255 || !cleanText(s) {
		return &InvalidError{Field: "cluster", Reason: "want 1 to 255 bytes of UTF-8 without NUL"}
	}
	return nil
}

// ValidateReason accepts what a text column takes, up to 1,024 bytes.
func ValidateReason(s string) error {
	if len(s) > MaxReasonBytes || !cleanText(s) {
		return &InvalidError{Field: "reason", Reason: "want at most 1,024 bytes of UTF-8 without NUL"}
	}
	return nil
}

// Validate accepts a limit of 1 to 1000 and a known state.
func (f Filter) Validate() error {
	var faults faults
	faults.check(f.Limit >= 1 && f.Limit <= 1000, "limit", "want 1 to 1000")
	faults.check(f.State == "" || f.State.Valid(), "state", "unknown state")
	faults.check(f.OlderThan >= 0, "older than", "negative")
	return faults.join()
}

func headerBytes(headers []Header) int {
	n := 0
	for _, h := range headers {
		n += len(h.Name) + len(h.Value) + 2
	}
	return n
}
