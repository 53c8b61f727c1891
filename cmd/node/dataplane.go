package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/probe"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/takeover"
	"github.com/probate-dev/probate/transfer"
)

// dataplane is the data plane of a node, put together.
type dataplane struct {
	*transfer.Plane
	routes    http.Handler
	internal  http.Handler
	catalogue *transfer.Catalogue
	peers     *peers
}

// newDataplane makes it; nil if it is not enabled.
func (n *node) newDataplane(ctx context.Context) (*dataplane, error) {
	d := n.config.Dataflows
	if !d.Enabled {
		return nil, nil //nolint:nilnil // then there is none
	}
	flows, err := storedFlows(ctx, n.store)
	if err != nil {
		return nil, err
	}
	described, err := d.catalogue()
	if err != nil {
		return nil, err
	}
	p := &dataplane{peers: &peers{node: n, client: http.Client{
		Transport:     n.asker.Transport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}}
	if p.catalogue, err = described.Open(); err != nil {
		return nil, err
	}
	config := d.transfer()
	if config.Tokens, err = d.tokens(); err != nil {
		return nil, err
	}
	config.Coordinator, config.Peers, config.Ends = n.takeover, p.peers, p.catalogue
	config.Store = flowStore{n.sealer.OverFlows(flows), n.store}
	config.Certificates = n.config.TLS.ClientCA != ""
	config.Slot, config.Logger = n.config.Slot, n.log
	config.Registration = transfer.Registration{
		URL: d.Registration.URL, Token: d.Registration.Token, ID: d.Registration.ID,
		Profiles: d.Registration.Profiles, Labels: d.Registration.Labels,
	}
	config.Events = n.metrics.flows()
	if p.Plane, err = transfer.New(config); err != nil {
		return nil, err
	}
	n.metrics.watchFlows(p.Plane, flows, n.log) //nolint:contextcheck // metrics are read whenever somebody scrapes them
	n.log.InfoContext(ctx, "moving data", "datasets", len(d.Datasets), "roots", len(d.Roots), "tokens", len(config.Tokens),
		"public_url", d.PublicURL, "control_plane", d.ControlPlane.URL)
	for _, r := range d.Roots {
		if err := r.look(); err != nil {
			n.log.WarnContext(ctx, "a folder of data flows is not there", "root", r.Name, "error", err)
		}
	}
	p.routes, p.internal = http.StripPrefix(flowsPath, p.Routes()), http.StripPrefix(heedPath, p.Internal())
	return p, nil
}

// flowsSchema is the first schema that has data flows.
const flowsSchema = 3

// Where the data plane is found: by control planes and consumers, and by other
// nodes.
const (
	flowsPath = "/dataflows"
	heedPath  = "/flows"
)

// flowsOf finds the flows of a store beneath what was put over it.
func flowsOf(s records.Store) (records.Flows, bool) {
	switch over := s.(type) {
	case timed:
		return flowsOf(over.Store)
	case *sealed.Store:
		return flowsOf(over.Store)
	}
	flows, ok := s.(records.Flows)
	return flows, ok
}

// flowStore is what the data plane uses of a store.
type flowStore struct {
	records.Flows
	records.Store
}

// serves reports whether a public request is for the data plane.
func (p *dataplane) serves(r *http.Request) bool {
	return p != nil && (r.URL.Path == flowsPath || strings.HasPrefix(r.URL.Path, flowsPath+"/"))
}

// mount adds what other nodes ask, behind what guards probes.
func (p *dataplane) mount(r chi.Router, guard func(http.Handler) http.Handler) {
	if p != nil {
		r.With(guard).Handle(heedPath+"/*", p.internal)
	}
}

// recover is what to do with an interrupted copy.
func (p *dataplane) recover(r records.Record) (takeover.Terms, takeover.Work, bool) {
	if p == nil {
		return takeover.Terms{}, nil, false
	}
	return p.Recover(r)
}

// drain ends what is moved here, so that others go on with it.
func (p *dataplane) drain() {
	if p != nil {
		p.Drain()
	}
}

// run does what nobody waits for until ctx ends.
func (p *dataplane) run(ctx context.Context) error {
	if p == nil {
		return nil
	}
	return p.Run(ctx)
}

func (p *dataplane) close() {
	if p != nil {
		p.catalogue.Close()
		p.peers.client.CloseIdleConnections()
	}
}

// peers are the other nodes, as the data plane sees them.
type peers struct {
	node   *node
	client http.Client
}

// Self implements [transfer.Peers].
func (p *peers) Self() records.ExecutorID { return p.node.takeover.Identity().Executor }

// Running implements [transfer.Peers] by a probe.
func (p *peers) Running(ctx context.Context, h records.Held) bool {
	return p.node.asker.Probe(ctx, h.Executor, h.Record.ID, h.Record.Epoch).Verdict == probe.Running
}

// Heed implements [transfer.Peers]. Whom it may dial, and how long that may
// take, is as with probes.
func (p *peers) Heed(ctx context.Context, executor, flow string) error {
	if err := records.ValidateExecutorURL(executor); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, executor+heedPath+"/"+url.PathEscape(flow)+"/heed", http.NoBody)
	if err != nil {
		return err
	}
	p.node.asker.Authorize(req)
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}
