package transfer_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/probate-dev/probate/transfer"
	"github.com/probate-dev/probate/transfer/move"
)

const wireStart = `{"messageId":"m","participantId":"p","counterPartyId":"c","dataspaceContext":"x","processId":"f","agreementId":"a",
	"datasetId":"d","profile":"x-push","dataAddress":{"endpointType":"file","endpoint":"file://f"}}`

// TestWire is about what stands in answers, to the letter.
func TestWire(t *testing.T) {
	t.Parallel()
	stuck := func(transfer.Task) (move.Source, error) { return held{nil}, nil }
	t.Run("OverItsLimitsAStartIsToldWhenToComeAgain", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stuck, func(c *transfer.Config) { c.Flows, c.Queue = 1, 1 })
		r.start("one", "d")
		r.start("two", "d")
		status, header, body := r.exchange(http.MethodPost, "/start", wireStart)
		seconds, err := strconv.Atoi(header.Get("Retry-After"))
		if status != http.StatusTooManyRequests || err != nil || seconds < 1 {
			t.Errorf("answer = %d, Retry-After %q: %s", status, header.Get("Retry-After"), body)
		}
	})
	t.Run("APageOfAnotherOriginStartsNothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stuck, func(*transfer.Config) {})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+"/start", strings.NewReader(wireStart))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Origin", "https://elsewhere.example")
		req.Header.Set("Content-Type", "text/plain")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d, want 401", resp.StatusCode)
		}
		if status, _, body := r.exchange(http.MethodGet, "/f/status", ""); status != http.StatusNotFound {
			t.Errorf("a flow was started: %d %s", status, body)
		}
	})
	t.Run("WhatIsAcceptedSaysWhereItsStatusIs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stuck, func(c *transfer.Config) { c.Async = true })
		status, header, body := r.exchange(http.MethodPost, "/start", strings.Replace(wireStart, `"processId":"f"`, `"processId":"a/b c"`, 1))
		if status != http.StatusAccepted || !strings.Contains(body, `"state":"STARTING"`) {
			t.Fatalf("start: %d %s", status, body)
		}
		location, found := strings.CutPrefix(header.Get("Location"), "/dataflows")
		if status, _, body := r.exchange(http.MethodGet, location, ""); !found || status != http.StatusOK || !strings.Contains(body, `"dataFlowId":"a/b c"`) {
			t.Errorf("%s: %d %s", location, status, body)
		}
	})
	t.Run("NoAnswerHasANullOrAnEmptyList", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, stuck, func(c *transfer.Config) { c.PublicURL = "https://data.example/dataflows" })
		pull := strings.Replace(wireStart[:strings.Index(wireStart, `,"dataAddress"`)]+"}", "x-push", "x-PULL", 1)
		for _, step := range []struct {
			path, body string
			status     int
		}{
			{"/start", wireStart, http.StatusOK},
			{"/start", wireStart, http.StatusOK},
			{"/f/suspend", `{"messageId":"m","reason":null}`, http.StatusOK},
			{"/f/resume", `{"messageId":"m","dataAddress":null}`, http.StatusOK},
			{"/start", strings.Replace(pull, `"f"`, `"pull"`, 1), http.StatusOK},
			{"/prepare", strings.Replace(pull, `"f"`, `"prepared"`, 1), http.StatusOK},
			{"/f/nonsense", "{}", http.StatusNotFound},
			{"/start", "{}", http.StatusBadRequest},
			{"/f/status", "", http.StatusOK},
			{"/pull/status", "", http.StatusOK},
			{"/prepared/status", "", http.StatusOK},
		} {
			method := http.MethodPost
			if step.body == "" {
				method = http.MethodGet
			}
			status, _, body := r.exchange(method, step.path, step.body)
			if status != step.status {
				t.Errorf("%s: %d %s", step.path, status, body)
			}
			var said any
			if body != "" && json.Unmarshal([]byte(body), &said) != nil || strings.Contains(body, "null") || strings.Contains(body, "[]") || strings.Contains(body, "{}") {
				t.Errorf("%s: %s", step.path, body)
			}
		}
	})
}
