package transfer_test

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

// receiving are ends of a consumer.
type receiving struct {
	transfer.Ends
	dir string
}

func (r receiving) Inbox(transfer.Task) (move.Sink, error) {
	return move.FileSink{Root: r.dir, Path: "in"}, nil
}

// TestReceive is about providers that send half of what they have and then
// nothing, and do not hang up.
func TestReceive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stall time.Duration
		then  func(r *rig)
		want  int
	}{
		"APushThatStallsIsGivenUp": {50 * time.Millisecond, func(*rig) {}, http.StatusRequestTimeout},
		"APushIsCutOffWhenItsFlowEnds": {time.Hour, func(r *rig) {
			if status, code, _ := r.ask(http.MethodPost, "/f/terminate", `{"messageId":"m"}`); status != http.StatusOK {
				r.t.Errorf("terminate: %d %s", status, code)
			}
		}, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRig(t, good, func(p *transfer.Config) {
				p.PublicURL, p.StallTimeout, p.Ends = "https://data.example/dataflows", c.stall, receiving{p.Ends, dir}
			})
			body, provider := io.Pipe()
			t.Cleanup(func() { _ = provider.Close() })
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, r.url+"/f/data", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Authorization", "Bearer "+r.offered("/prepare", strings.Replace(pullMessage, "x-pull", "x-push", 1)))
			answered := make(chan int, 1)
			go func() {
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					answered <- 0
					return
				}
				resp.Body.Close()
				answered <- resp.StatusCode
			}()
			if _, err := provider.Write(make([]byte, 1<<10)); err != nil {
				t.Fatal(err)
			}
			r.await("it is being received", func() bool {
				found, err := os.ReadDir(dir)
				return err == nil && len(found) == 1
			})
			c.then(r)
			var status int
			r.await("the provider is answered", func() bool {
				select {
				case status = <-answered:
					return true
				default:
					return false
				}
			})
			if status != c.want {
				t.Errorf("status = %d, want %d", status, c.want)
			}
			if found, err := os.ReadDir(dir); err != nil || len(found) > 0 {
				t.Errorf("left: %v, %v", found, err)
			}
		})
	}
}

// TestReceive_Declared is about what the message that prepared a flow says of
// its bytes.
func TestReceive_Declared(t *testing.T) {
	t.Parallel()
	const sum = "277089d91c0bdf4f2e6862ba7e4a07605119431f5d13f726dd352b06f1b206a9" // of what send sends
	for name, c := range map[string]struct {
		metadata string
		want     int
	}{
		"WhatMatchesIsTakenIn":      {`{"contentLength":5,"sha256":"` + sum + `"}`, http.StatusOK},
		"AnotherLengthIsRefused":    {`{"contentLength":6}`, http.StatusUnprocessableEntity},
		"AnotherDigestIsRefused":    {`{"sha256":"` + strings.Repeat("0", 64) + `"}`, http.StatusUnprocessableEntity},
		"MoreThanDeclaredIsRefused": {`{"contentLength":"4","sha256":"` + sum + `"}`, http.StatusUnprocessableEntity},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRig(t, good, func(p *transfer.Config) {
				p.PublicURL, p.Ends = "https://data.example/dataflows", receiving{p.Ends, dir}
			})
			message := strings.Replace(toReceive, `"messageId"`, `"metadata":`+c.metadata+`,"messageId"`, 1)
			if status := r.send(r.offered("/prepare", message)); status != c.want {
				t.Errorf("status = %d, want %d", status, c.want)
			}
			found, err := os.ReadDir(dir)
			if err != nil || (len(found) == 1) != (c.want == http.StatusOK) {
				t.Errorf("there: %v, %v", found, err)
			}
		})
	}
}

// TestReceive_Left is about what a node leaves behind that is killed while it
// receives.
func TestReceive_Left(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"terminate", "completed"} {
		t.Run("IsTakenAwayBy_"+end, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := newRig(t, good, func(p *transfer.Config) {
				p.PublicURL, p.Ends = "https://data.example/dataflows", receiving{p.Ends, dir}
			})
			if status := r.send(r.offered("/prepare", toReceive)); status != http.StatusOK {
				t.Fatalf("a push: %d", status)
			}
			if status, code, _ := r.ask(http.MethodPost, "/f/started", `{"messageId":"m"}`); status != http.StatusOK {
				t.Fatalf("started: %d %s", status, code)
			}
			part, err := (move.FileSink{Root: dir, Path: "in"}).Begin(t.Context(), move.Start{Identity: move.Identity{Flow: "f", Epoch: time.Now().UnixMicro()}, Length: -1})
			if err == nil {
				err = part.Keep()
			}
			if err != nil {
				t.Fatal(err)
			}
			if status, code, _ := r.ask(http.MethodPost, "/f/"+end, `{"messageId":"m"}`); status != http.StatusOK {
				t.Fatalf("%s: %d %s", end, status, code)
			}
			if found, err := os.ReadDir(dir); err != nil || len(found) != 1 || found[0].Name() != "in" {
				t.Errorf("there: %v, %v; want what was received, and nothing else", found, err)
			}
		})
	}
}
