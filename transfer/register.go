package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Registration tells a control plane's management about this data plane.
type Registration struct {
	URL      string // its base address; empty: nobody is told
	Token    string // bearer token; empty: none
	ID       string // this data plane's name
	Profiles []string
	Labels   []string
}

// register tells the control plane until it has understood, or ctx ends. It
// replaces what was registered before under that name.
func (p *Plane) register(ctx context.Context) {
	r := p.config.Registration
	if r.URL == "" {
		return
	}
	pause := p.config.CallbackPause
	for {
		status, err := p.registerOnce(ctx, r)
		if err == nil && status/100 == 2 {
			p.log.InfoContext(ctx, "registered with the control plane", "id", r.ID)
			return
		}
		if ctx.Err() != nil {
			return
		}
		p.log.WarnContext(ctx, "not registered with the control plane", "id", r.ID, "status", status, "error", err, "again_in", pause.String())
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, p.config.CallbackPauseMax)
	}
}

func (p *Plane) registerOnce(ctx context.Context, r Registration) (int, error) {
	message := struct {
		DataplaneID   string         `json:"dataplaneId"`
		Endpoint      string         `json:"endpoint"`
		Profiles      []string       `json:"profiles"`
		TransferTypes []string       `json:"transferTypes"` // what EDC 0.16 to 0.18 call them
		Authorization map[string]any `json:"authorization"`
		Labels        []string       `json:"labels,omitempty"`
	}{r.ID, p.config.PublicURL, r.Profiles, r.Profiles, map[string]any{"type": "bearer"}, r.Labels}
	body, err := json.Marshal(message)
	if err != nil {
		return 0, fmt.Errorf("describe this data plane: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.CallbackTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, strings.TrimSuffix(r.URL, "/")+"/v4/dataplanes", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "probate")
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	resp, err := p.config.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	return resp.StatusCode, nil
}
