package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/records"
)

// Remote is where an operator's command goes: to a node's operator API instead
// of straight to the store.
type Remote struct {
	Node  string `help:"Go through the operator API of this node instead of straight to the store." placeholder:"URL"`
	Token string `help:"Bearer token for --node. Default: $$PROBATE_OPERATOR_TOKEN, which other users of this host do not see." placeholder:"TOKEN"`
}

// adminClient speaks to the operator API of one node.
type adminClient struct {
	base   *url.URL
	token  string
	client *http.Client
}

// remoteTime is how long an answer may take; a reconciler is waited for.
const remoteTime = time.Minute

// open makes a client for the node that was named, or, with a fallback, for
// that one. Nil: none was.
func (r Remote) open(e *env, config Config, fallback string) (*adminClient, error) {
	node := r.Node
	if node == "" {
		node = fallback
	}
	if node == "" {
		return nil, nil //nolint:nilnil // then the store is meant
	}
	base, err := url.Parse(node)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, usageError{fmt.Errorf("--node %q: want http:// or https:// and a host", node)}
	}
	c := &adminClient{base: base, token: r.Token}
	if c.token == "" {
		c.token = e.environ["PROBATE_OPERATOR_TOKEN"]
	}
	if c.token == "" {
		return nil, usageError{errors.New("a node wants an operator's token: PROBATE_OPERATOR_TOKEN, or --token")}
	}
	if c.client, err = newPlainClient(config, remoteTime); err != nil {
		return nil, err
	}
	return c, nil
}

// either asks the node that was named, or else opens the store.
func (e *env) either(ctx context.Context, r Remote, flags kong.Plugins, remote func(node *adminClient) error, straight func(c Config, s records.Store) error) error {
	config, err := e.storeConfig(flags)
	if err != nil {
		return err
	}
	node, err := r.open(e, config, "")
	if err != nil {
		return err
	}
	if node != nil {
		defer node.close()
		return remote(node)
	}
	return e.withStore(ctx, config, func(s records.Store) error { return straight(config, s) })
}

func (c *adminClient) close() { c.client.CloseIdleConnections() }

// maxRemoteAnswer bounds what is read of an answer: a thousand records with
// the longest fields that make sense.
const maxRemoteAnswer = 64 << 20

// call asks, with a body if there is one to send, and reads the answer into a
// value.
func (c *adminClient) call(ctx context.Context, method, path string, query url.Values, send, into any) error {
	to := *c.base.JoinPath(path)
	to.RawQuery = query.Encode()
	var body io.Reader
	if send != nil {
		text, err := json.Marshal(send)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if send != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRemoteAnswer))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return refusedBy(c.base.Host, resp.StatusCode, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: the answer is not a node's: %w", c.base.Host, err)
	}
	return nil
}

// refusedBy is a node's refusal.
func refusedBy(host string, status int, text []byte) error {
	var p struct{ Detail, Code string }
	if json.Unmarshal(text, &p) != nil || p.Detail == "" {
		p.Detail = "no operator API is there, or it is not a node's internal listener"
	}
	err := fmt.Errorf("%s: status %d: %s", host, status, harmless(p.Detail))
	switch {
	case p.Code == "store_unavailable":
		return errors.Join(err, records.ErrUnavailable)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge:
		return usageError{err}
	case status < http.StatusInternalServerError:
		return refusedError{err}
	}
	return err
}

// operator is who gives an order straight to the store.
func (e *env) operator(named string) string {
	for _, name := range []string{named, e.environ["USER"], e.environ["LOGNAME"]} {
		if name = strings.TrimSpace(name); name != "" {
			return name
		}
	}
	return "unnamed operator"
}
