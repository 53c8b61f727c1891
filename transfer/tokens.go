package transfer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	mathrand "math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/probate-dev/probate/records"
)

// issue makes a token for a flow's data, and the address that carries it. Only
// its hash is stored, beside those that were issued before: a start whose
// answer was lost gets a token that works, and the first one goes on working.
// The oldest is forgotten when there are too many.
func (p *Plane) issue(id, profile string, before []byte) (*DataAddress, []byte, error) {
	if p.config.PublicURL == "" {
		return nil, nil, &invalid{[]error{errors.New("this data plane has no public address: it offers no data and takes none in")}}
	}
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	token := base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(token))
	tokens := append(slices.Clone(before), sum[:]...)
	if extra := len(tokens)/sha256.Size - records.MaxFlowTokens; extra > 0 {
		tokens = tokens[extra*sha256.Size:]
	}
	return &DataAddress{
		Type: "DataAddress", EndpointType: profile, Endpoint: p.config.PublicURL + "/" + url.PathEscape(id) + "/data",
		Properties: []EndpointProperty{
			{Type: "EndpointProperty", Name: "authorization", Value: token},
			{Type: "EndpointProperty", Name: "authType", Value: "bearer"},
		},
	}, tokens, nil
}

// reissue adds a token to a flow that stands.
func (p *Plane) reissue(ctx context.Context, id string) (records.Flow, *DataAddress, error) {
	for try := 0; ; try++ {
		held, err := p.store.LoadFlow(ctx, id)
		f := held.Flow
		if err != nil || f.State != records.FlowStarted && f.State != records.FlowPrepared {
			return f, nil, err
		}
		address, tokens, err := p.issue(id, f.Profile, f.Tokens)
		if err != nil {
			return f, nil, err
		}
		moved, err := p.store.MoveFlow(ctx, records.FlowMove{ID: id, Attempt: records.NewToken(), Version: f.Version, To: f.State, Tokens: tokens})
		if err == nil || !errors.Is(err, records.ErrFenced) || try == 100 {
			return moved, address, err
		}
		if !sleep(ctx, mathrand.N(10*time.Millisecond)) { //nolint:gosec // others ask at the same moment: spread, not secret
			return f, nil, context.Cause(ctx)
		}
	}
}

// opens reports whether the token is one of the flow's.
func opens(f records.Flow, token string) bool {
	sum := sha256.Sum256([]byte(token))
	found := 0
	for known := range slices.Chunk(f.Tokens, sha256.Size) {
		found |= subtle.ConstantTimeCompare(known, sum[:])
	}
	return token != "" && found == 1
}

// startPull makes a flow whose data consumers come for.
func (p *Plane) startPull(ctx context.Context, m Message, t Task) (*answer, error) {
	address, tokens, err := p.issue(m.ProcessID, m.Profile, nil)
	if err != nil {
		return nil, err
	}
	f := p.newFlow(m, false, records.FlowStarted)
	f.Tokens = tokens
	stored, fresh, err := p.create(ctx, f, t)
	if err != nil {
		return nil, err
	}
	if !fresh {
		return p.startAgain(ctx, stored, m)
	}
	return &answer{status: 200, flow: stored, address: address}, nil
}
