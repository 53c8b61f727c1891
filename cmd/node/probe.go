package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
)

type probeCmd struct {
	URL      string        `arg:"" help:"Base URL of a node's listener, such as http://10.0.0.7:8081."`
	Record   string        `arg:"" optional:"" help:"Ask whether the node runs this record; its internal listener answers that."`
	Executor string        `help:"Which executor the question is for. Default: the one that answers." placeholder:"ID"`
	Verify   bool          `help:"Verify the signature with the key in the store."`
	Timeout  time.Duration `default:"5s" help:"How long the node may take."`
	Settings kong.Plugins  `embed:"" group:"Settings"`
}

// Help is shown below the flags.
func (probeCmd) Help() string {
	return `Without a record: GET /probe, and the exit code says whether the node serves, which suits a container's health check.
Without --verify no store is needed, and an answer is shown without knowing whether its signature is good.

Examples:

  probate probe http://127.0.0.1:8080
  probate probe http://10.0.0.7:8081 5b1f7a… --verify`
}

var errNotServing = errors.New("the node does not serve")

// Run implements the subcommand.
func (c *probeCmd) Run(ctx context.Context, e *env) error {
	base, err := url.Parse(c.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return usageError{fmt.Errorf("%q: want http:// or https:// and a host", c.URL)}
	}
	config, err := e.storeConfig(c.Settings)
	if err != nil {
		return err
	}
	client, err := newPlainClient(config, c.Timeout)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	if c.Record == "" {
		return c.health(ctx, e, client, base)
	}
	id, err := records.ParseID(c.Record)
	if err != nil {
		return usageError{err}
	}
	return c.question(ctx, e, config, client, base, id)
}

// newPlainClient asks what was named and nobody else: no proxies, no
// redirects.
func newPlainClient(c Config, timeout time.Duration) (*http.Client, error) {
	t, err := c.Internal.TLS.load()
	if err != nil {
		return nil, configError{err}
	}
	return &http.Client{
		Timeout:       timeout,
		Transport:     &http.Transport{TLSClientConfig: t},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// healthReport is what GET /probe was answered.
type healthReport struct {
	URL     string          `json:"url"`
	Serving bool            `json:"serving"`
	Status  int             `json:"status"`
	TookMS  int64           `json:"took_ms"`
	Body    json.RawMessage `json:"body,omitempty"` // if it was JSON
}

func (c *probeCmd) health(ctx context.Context, e *env, client *http.Client, base *url.URL) error {
	r, err := readHealth(ctx, client, base)
	if err != nil {
		return err
	}
	if err := e.show(r, func(w *text) {
		word, colour := "serving", green
		if !r.Serving {
			word, colour = "not serving", red
		}
		w.printf("%s: %s, status %d after %d ms\n%s\n", r.URL, e.paint(colour, word), r.Status, r.TookMS, strings.TrimSpace(string(r.Body)))
	}); err != nil {
		return err
	}
	if !r.Serving {
		return fmt.Errorf("%s: %w", r.URL, errNotServing)
	}
	return nil
}

// readHealth asks the path of the URL, or /probe if it has none.
func readHealth(ctx context.Context, client *http.Client, base *url.URL) (healthReport, error) {
	at := *base
	if at.Path == "" || at.Path == "/" {
		at.Path = "/probe"
	}
	r, begun := healthReport{URL: at.String()}, time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return r, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, probe.MaxMessage))
	if err != nil {
		return r, fmt.Errorf("read answer: %w", err)
	}
	r.Status, r.Serving, r.TookMS = resp.StatusCode, resp.StatusCode == http.StatusOK, time.Since(begun).Milliseconds()
	if json.Valid(body) {
		r.Body = body
	}
	return r, nil
}

// answerReport is what a question about a record was answered.
type answerReport struct {
	URL       string          `json:"url"`
	Record    string          `json:"record"`
	Asked     string          `json:"asked"`
	Signature string          `json:"signature"` // verified, not_verified
	Statement json.RawMessage `json:"statement"`
}

func (c *probeCmd) question(ctx context.Context, e *env, config Config, client *http.Client, base *url.URL, id records.ID) error {
	asked := c.Executor
	if asked == "" {
		h, err := readHealth(ctx, client, base)
		if err != nil {
			return err
		}
		var health struct{ Executor string }
		if err := json.Unmarshal(h.Body, &health); err != nil || health.Executor == "" {
			return fmt.Errorf("%s does not say which executor it is (status %d): is it a node's internal listener?", h.URL, h.Status)
		}
		asked = health.Executor
	}
	executor, err := records.ParseExecutorID(asked)
	if err != nil {
		return usageError{err}
	}
	nonce := probe.NewNonce()
	message, err := post(ctx, client, config.Internal.Token, base.JoinPath("probe", "records", id.String()).String(),
		map[string]any{"executor": executor, "nonce": nonce.String()})
	if err != nil {
		return err
	}
	report := answerReport{URL: c.URL, Record: id.String(), Asked: asked, Signature: "not_verified"}
	if report.Statement, err = statementOf(message, nonce); err != nil {
		return err
	}
	if c.Verify {
		if err := e.verify(ctx, config, message, nonce); err != nil {
			return err
		}
		report.Signature = "verified"
	}
	return e.show(report, func(w *text) {
		var s struct{ Answer, Executor, Slot string }
		_ = json.Unmarshal(report.Statement, &s) // it was read before
		w.printf("executor %s in slot %s answers: %s\nsignature: %s\n", s.Executor, harmless(s.Slot), harmless(s.Answer), strings.ReplaceAll(report.Signature, "_", " "))
	})
}

// post sends a question and reads what comes back.
func post(ctx context.Context, client *http.Client, token, to string, question any) ([]byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, probe.MaxMessage))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d: %s", to, resp.StatusCode, harmless(strings.TrimSpace(string(reply))))
	}
	return reply, nil
}

// statementOf takes the statement out of a message, without its signature
// being known to be good.
func statementOf(message []byte, nonce probe.Nonce) (json.RawMessage, error) {
	var envelope struct{ Payload []byte }
	var s struct{ Nonce string }
	if err := json.Unmarshal(message, &envelope); err != nil || json.Unmarshal(envelope.Payload, &s) != nil {
		return nil, errors.New("the answer is not a node's")
	}
	if s.Nonce != nonce.String() {
		return nil, errors.New("the answer is to another question: something replays answers")
	}
	return envelope.Payload, nil
}

func (e *env) verify(ctx context.Context, config Config, message []byte, nonce probe.Nonce) error {
	return e.withStore(ctx, config, func(st records.Store) error {
		known, err := st.ListExecutors(ctx)
		if err != nil {
			return err
		}
		s, err := probe.Open(message, probe.KindRecord, func(id records.ExecutorID) (ed25519.PublicKey, bool) {
			for _, x := range known {
				if x.ID == id {
					return x.PublicKey, true
				}
			}
			return nil, false
		})
		switch {
		case err != nil:
			return fmt.Errorf("the answer is not to be trusted: %w", err)
		case s.Nonce != nonce || s.Cluster != config.Cluster:
			return fmt.Errorf("the answer is of cluster %q, or to another question", s.Cluster)
		}
		return nil
	})
}
