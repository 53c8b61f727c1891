package recordstest

import (
	"slices"
	"strings"
	"time"

	"github.com/probate-dev/probate/records"
)

// odd are byte strings that a text column would refuse or change.
func odd() map[string]string {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	return map[string]string{
		"nothing":            "",
		"NUL":                "\x00",
		"NUL inside":         "a\x00b",
		"invalid UTF-8":      "\xff\xfe\xc3(",
		"every byte":         string(every),
		"3,000 random bytes": string(randomBytes(3000)),
		"trailing blanks":    "key  \t\n",
		"looks like hex":     `\x00ff`,
		"quotes and escapes": `'"\{},NULL,` + "`$1;--",
		"as much as goes":    strings.Repeat("k", records.MaxFieldBytes),
	}
}

var inputRules = group{name: "Input", rules: []rule{
	{"ComesBackByteForByte", func(f *fixture) {
		by := f.active(records.Registration{})
		for what, s := range odd() {
			r := reservation(by.ID)
			r.Realm, r.Key, r.Operation, r.Resource = s, s, s, s
			r.Request = []byte(s)
			f.reserve(r)
			done := records.Outcome{Retention: long, Response: records.Response{
				Status: 200, Headers: []records.Header{{Name: s, Value: s}}, Body: []byte(s),
			}}
			f.check(f.store.Finalize(f.Context(), r.ID, records.Fence{Executor: by.ID, Epoch: f.load(r.ID).Record.Epoch}, done))
			got := f.load(r.ID).Record
			f.equal(what+": response", got.Response, &done.Response)
			f.equal(what+": strings", []string{got.Realm, got.Key, got.Operation, got.Resource}, []string{s, s, s, s})
			f.equal(what+": request", got.Request, r.Request)
		}
	}},
	{"AnEmptyRequestIsNotNone", func(f *fixture) {
		by := f.active(records.Registration{})
		for _, request := range [][]byte{nil, {}, {0}} {
			r := reservation(by.ID)
			r.Request = request
			f.equal("request", f.reserve(r).Request, request)
			f.equal("request read back", f.load(r.ID).Record.Request, request)
			got, err := f.store.TakeOver(f.Context(), takeOver(f.load(r.ID).Record, by.ID))
			f.check(err)
			f.equal("request taken over", got.Request, request)
		}
	}},
	{"AnEmptyBodyIsNotNone", func(f *fixture) {
		by := f.active(records.Registration{})
		for _, body := range [][]byte{nil, {}, {0}} {
			r := f.claim(by.ID)
			f.finalize(r, records.Outcome{Response: records.Response{Status: 204, Body: body}, Retention: long})
			f.equal("body", f.load(r.ID).Record.Response.Body, body)
		}
	}},
	{"HeadersKeepTheirOrderAndRepeats", func(f *fixture) {
		by := f.active(records.Registration{})
		for _, headers := range [][]records.Header{
			nil,
			{{Name: "", Value: ""}},
			{{Name: "Link", Value: "<b>"}, {Name: "etag", Value: `"1"`}, {Name: "Link", Value: "<a>"}, {Name: "LINK", Value: "<b>"}, {Name: "Link", Value: "<b>"}},
			slices.Repeat([]records.Header{{Name: "Via", Value: "proxy"}}, 500),
		} {
			r := f.claim(by.ID)
			done := records.Outcome{Response: records.Response{Status: 200, Headers: headers}, Retention: long}
			f.finalize(r, done)
			f.equal("response", f.load(r.ID).Record.Response, &done.Response)
		}
	}},
	{"EveryStatusIsKept", func(f *fixture) {
		by := f.active(records.Registration{})
		for _, status := range []int{100, 200, 304, 599} {
			r := f.claim(by.ID)
			f.finalize(r, records.Outcome{Response: records.Response{Status: status}, Retention: long})
			f.equal("status", f.load(r.ID).Record.Response.Status, status)
		}
	}},
	{"AMegabyteGoesAndComes", func(f *fixture) {
		by := f.active(records.Registration{})
		r := reservation(by.ID)
		r.Request = randomBytes(1 << 20)
		done := records.Outcome{Response: records.Response{Status: 200, Body: randomBytes(1 << 20)}, Retention: long}
		f.finalize(f.reserve(r), done)
		got := f.load(r.ID).Record
		if !slices.Equal(got.Request, r.Request) || !slices.Equal(got.Response.Body, done.Response.Body) {
			f.Errorf("%d bytes of request and %d of body came back otherwise", len(got.Request), len(got.Response.Body))
		}
	}},
	{"PrincipalsAndRealmsDoNotMeet", func(f *fixture) {
		by := f.active(records.Registration{})
		key := string(randomBytes(16))
		for _, k := range []records.Key{
			{Realm: "a", Principal: "b", Key: key},
			{Realm: "ab", Principal: "", Key: key},
			{Realm: "", Principal: "ab", Key: key},
			{Realm: "a", Principal: "c", Key: key},
		} {
			r := reservation(by.ID)
			r.ID, r.Realm, r.Key = k.ID(), k.Realm, k.Key
			f.reserve(r)
		}
	}},
}}

var refusedInputRules = group{name: "InputRefuses", rules: []rule{
	{"AReservationThatCouldNeverBeStored", func(f *fixture) {
		by := f.active(records.Registration{})
		tooLong := strings.Repeat("k", records.MaxFieldBytes+1)
		for what, spoil := range map[string]func(*records.Reservation){
			"no id":           func(r *records.Reservation) { r.ID = records.ID{} },
			"no attempt":      func(r *records.Reservation) { r.Attempt = records.Token{} },
			"long realm":      func(r *records.Reservation) { r.Realm = tooLong },
			"long key":        func(r *records.Reservation) { r.Key = tooLong },
			"long operation":  func(r *records.Reservation) { r.Operation = tooLong },
			"long resource":   func(r *records.Reservation) { r.Resource = tooLong },
			"a large request": func(r *records.Reservation) { r.Request = make([]byte, records.MaxRequestBytes+1) },
		} {
			r := reservation(by.ID)
			spoil(&r)
			_, err := f.store.Reserve(f.Context(), r)
			f.refusedFor(what, err)
			_, err = f.store.Load(f.Context(), r.ID)
			f.refused(err, records.ErrNotFound)
		}
	}},
	{"AClaimWithoutAToken", func(f *fixture) {
		a := f.active(records.Registration{})
		held, lost := f.claim(a.ID), f.unknown(a.ID)
		_, err := f.store.TakeOver(f.Context(), records.TakeOver{ID: held.ID, From: held.Fence(), By: a.ID})
		f.refused(err, records.ErrInvalid)
		f.unchanged(held)
		_, err = f.store.ClaimUnknown(f.Context(), records.UnknownClaim{ID: lost.ID, Epoch: lost.Epoch, By: a.ID})
		f.refused(err, records.ErrInvalid)
		f.unchanged(lost)
	}},
	{"AnOutcomeThatCouldNeverBeStored", func(f *fixture) {
		r := f.claim(f.active(records.Registration{}).ID)
		large := []records.Header{{Name: "X", Value: strings.Repeat("v", records.MaxHeaderBytes)}}
		for what, spoil := range map[string]func(*records.Outcome){
			"no status":          func(o *records.Outcome) { o.Response.Status = 0 },
			"a status below":     func(o *records.Outcome) { o.Response.Status = 99 },
			"a status above":     func(o *records.Outcome) { o.Response.Status = 600 },
			"large headers":      func(o *records.Outcome) { o.Response.Headers = large },
			"a large body":       func(o *records.Outcome) { o.Response.Body = make([]byte, records.MaxBodyBytes+1) },
			"negative retention": func(o *records.Outcome) { o.Retention = -1 },
			"endless retention":  func(o *records.Outcome) { o.Retention = 11 * 365 * 24 * time.Hour },
		} {
			o := outcome("done", long)
			spoil(&o)
			f.refusedFor(what, f.store.Finalize(f.Context(), r.ID, r.Fence(), o))
			f.unchanged(r)
		}
		f.refusedFor("negative retention", f.store.MarkUnknown(f.Context(), r.ID, r.Fence(), -1))
		f.unchanged(r)
	}},
	{"ARegistrationThatCouldNeverBeStored", func(f *fixture) {
		for what, spoil := range map[string]func(*records.Registration){
			"no id":         func(r *records.Registration) { r.ID = records.ExecutorID{} },
			"a NUL slot":    func(r *records.Registration) { r.Slot = "slot\x00" },
			"a broken slot": func(r *records.Registration) { r.Slot = "slot\xff" },
			"a long slot":   func(r *records.Registration) { r.Slot = strings.Repeat("s", 256) },
			"a path":        func(r *records.Registration) { r.URL = "http://127.0.0.1:80/metadata" },
			"userinfo":      func(r *records.Registration) { r.URL = "http://user@127.0.0.1:80" },
			"a short key":   func(r *records.Registration) { r.PublicKey = r.PublicKey[:31] },
			"a strange law": func(r *records.Registration) { r.Policy = "never" },
			"no lease":      func(r *records.Registration) { r.LeaseTTL = -1 },
			"a long lease":  func(r *records.Registration) { r.LeaseTTL = 25 * time.Hour },
		} {
			r := registration(records.Registration{})
			spoil(&r)
			_, err := f.store.Register(f.Context(), r)
			f.refusedFor(what, err)
			_, err = f.store.LoadExecutor(f.Context(), r.ID)
			f.refused(err, records.ErrNotFound)
		}
	}},
	{"OneBadInputAmongGoodOnesAlone", func(f *fixture) {
		by := f.active(records.Registration{})
		errs := atOnce(32, func(i int) error {
			r := reservation(by.ID)
			if i%4 == 0 {
				r.Realm = strings.Repeat("k", records.MaxFieldBytes+1)
			}
			_, err := f.store.Reserve(f.Context(), r)
			return err
		})
		for i, err := range errs {
			if i%4 == 0 {
				f.refused(err, records.ErrInvalid)
			} else {
				f.check(err)
			}
		}
	}},
}}

func (f *fixture) refusedFor(what string, err error) {
	f.Helper()
	if !isAny(err, records.ErrInvalid) {
		f.Errorf("%s: error = %v, want ErrInvalid", what, err)
	}
}
