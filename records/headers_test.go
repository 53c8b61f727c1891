package records_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/probate-dev/probate/records"
)

func TestHeaders(t *testing.T) {
	t.Run("TheStoredFormNeverChanges", func(t *testing.T) {
		got := records.AppendHeaders([]byte("before"), []records.Header{{Name: "Etag", Value: `"1"`}, {Name: "X"}})
		want := []byte("before" + "\x02" + "\x04Etag" + "\x03\"1\"" + "\x01X" + "\x00")
		if !bytes.Equal(got, want) {
			t.Errorf("stored form = %q, want %q", got, want)
		}
	})
	t.Run("ComeBackInOrderWithRepeatsAndAnyByte", func(t *testing.T) {
		for _, headers := range [][]records.Header{
			nil,
			{{}},
			{{Name: "Link", Value: "<b>"}, {Name: "link", Value: "<a>"}, {Name: "Link", Value: "<b>"}},
			{{Name: "X", Value: "\x00\xff\r\n"}, {Name: "\x00", Value: ""}},
			slices.Repeat([]records.Header{{Name: "Via", Value: strings.Repeat("v", 300)}}, 200),
		} {
			got, err := records.ParseHeaders(records.AppendHeaders(nil, headers))
			if err != nil || !slices.Equal(got, headers) {
				t.Errorf("%q came back as %q, %v", headers, got, err)
			}
		}
	})
	t.Run("ACutFormIsCorrupt", func(t *testing.T) {
		whole := records.AppendHeaders(nil, []records.Header{{Name: "Etag", Value: "1"}, {Name: "Link", Value: "<a>"}})
		for n := range whole {
			if got, err := records.ParseHeaders(whole[:n]); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("%d of %d bytes were read as %q, %v", n, len(whole), got, err)
			}
		}
	})
	t.Run("ALongFormIsCorrupt", func(t *testing.T) {
		whole := records.AppendHeaders(nil, []records.Header{{Name: "Etag", Value: "1"}})
		if got, err := records.ParseHeaders(append(whole, 0)); !errors.Is(err, records.ErrCorrupt) {
			t.Errorf("read as %q, %v", got, err)
		}
	})
	t.Run("ACountThatLiesIsCorruptAndAllocatesNothing", func(t *testing.T) {
		for _, count := range []uint64{1, 1 << 20, 1 << 62, 1<<64 - 1} {
			form := binary.AppendUvarint(nil, count)
			if got, err := records.ParseHeaders(form); !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("count %d was read as %q, %v", count, got, err)
			}
		}
		length := append([]byte{1}, binary.AppendUvarint(nil, 1<<64-1)...)
		if got, err := records.ParseHeaders(append(length, "name"...)); !errors.Is(err, records.ErrCorrupt) {
			t.Errorf("an endless name was read as %q, %v", got, err)
		}
		if got, err := records.ParseHeaders(bytes.Repeat([]byte{0xff}, 11)); !errors.Is(err, records.ErrCorrupt) {
			t.Errorf("an endless count was read as %q, %v", got, err)
		}
	})
}

// FuzzParseHeaders: whatever is read, writing it and reading it again yields
// the same, and nothing else than ErrCorrupt comes of the rest.
func FuzzParseHeaders(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0})
	f.Add(records.AppendHeaders(nil, []records.Header{{Name: "Etag", Value: "1"}, {Name: "Etag", Value: ""}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, form []byte) {
		headers, err := records.ParseHeaders(form)
		if err != nil {
			if !errors.Is(err, records.ErrCorrupt) {
				t.Errorf("%v, want ErrCorrupt", err)
			}
			return
		}
		again, err := records.ParseHeaders(records.AppendHeaders(nil, headers))
		if err != nil || !slices.Equal(again, headers) {
			t.Errorf("%q came back as %q, %v", headers, again, err)
		}
	})
}

// FuzzAppendHeaders: any two headers come back as they went.
func FuzzAppendHeaders(f *testing.F) {
	f.Add("Link", "<a>", "link", "")
	f.Add("", "", "\x00", "\xff")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		headers := []records.Header{{Name: n1, Value: v1}, {Name: n2, Value: v2}}
		got, err := records.ParseHeaders(records.AppendHeaders(nil, headers))
		if err != nil || !slices.Equal(got, headers) {
			t.Errorf("%q came back as %q, %v", headers, got, err)
		}
	})
}
