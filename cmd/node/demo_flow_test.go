package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The demo as a whole is run by the tests of the built program.
func TestDataflowDemo(t *testing.T) {
	t.Parallel()
	t.Run("DrawsABarOnATerminal", func(t *testing.T) {
		t.Parallel()
		var w strings.Builder
		b := bar{w: &text{w: &w}, total: 4 << 20, drawn: true}
		b.clear()
		if w.Len() > 0 {
			t.Errorf("cleared what is not there: %q", w.String())
		}
		if b.at(1<<20, "node-1") {
			t.Error("what is drawn is told too")
		}
		if got := w.String(); !strings.Contains(got, "node-1 [##########····") || !strings.Contains(got, " 25 %  1.0 MB of 4.0 MB") || strings.Contains(got, "\n") {
			t.Errorf("drawn: %q", got)
		}
		w.Reset()
		b.clear()
		b.clear()
		if w.String() != "\r\x1b[K" {
			t.Errorf("cleared: %q", w.String())
		}
		b.at(5<<20, "node-1") // more than there is
		if !strings.Contains(w.String(), strings.Repeat("#", barWidth)+"] 100 %") {
			t.Errorf("drawn: %q", w.String())
		}
	})
	t.Run("TellsTenthsElsewhere", func(t *testing.T) {
		t.Parallel()
		b := bar{total: 100}
		var told []int64
		for done := int64(0); done <= 100; done += 5 {
			if b.at(done, "") {
				told = append(told, done)
			}
		}
		b.clear()
		if fmt.Sprint(told) != "[10 20 30 40 50 60 70 80 90 100]" || b.at(30, "") {
			t.Errorf("told at %v", told)
		}
	})
	t.Run("CountsWhatIsReadAtTheSource", func(t *testing.T) {
		t.Parallel()
		const size = 1 << 20
		o, err := openSource(t.Context(), &script{begun: time.Now()}, t.TempDir()+"/f", size)
		if err != nil {
			t.Fatal(err)
		}
		defer o.close()
		o.release()
		for _, spec := range []string{"bytes=1048000-", "bytes=2000000-"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.url, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Range", spec)
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			_ = resp.Body.Close()
		}
		if got := fmt.Sprint(o.reads()); got != "[{1048000 576}]" {
			t.Errorf("reads = %s", got)
		}
	})
	t.Run("RefusesASizeOfNothing", func(t *testing.T) {
		t.Parallel()
		for _, size := range []string{"0", "-1", "10001"} {
			if r := invoke(t, nil, "demo", "--dataflow", "--size", size); r.code != exitUsage {
				t.Errorf("--size %s: exit code %d\n%s", size, r.code, r.err)
			}
		}
	})
	t.Run("FailsIfAClaimOfTheCopyDidNotHold", func(t *testing.T) {
		t.Parallel()
		r := demoReport{
			Copy:   &demoCopy{Bytes: 1 << 20, SHA256: "abc", Reads: []demoRead{{0, 1 << 20}}},
			Claims: []demoClaim{{Claim: "it was read on", Saw: "from zero"}},
		}
		var b strings.Builder
		r.write(&env{}, &text{w: &b})
		if got := b.String(); r.verdict() == nil || strings.Contains(got, "Moved whole") || !strings.Contains(got, "1.0 MB read at the source, from byte 0 on") || !strings.Contains(got, "SHA-256 abc") {
			t.Errorf("written:\n%s", got)
		}
	})
}
