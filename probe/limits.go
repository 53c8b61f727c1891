package probe

import (
	"net/http"
	"net/netip"
	"sync"
)

// Limits bound what is answered at once; beyond them the answer is 429, which
// a client takes for [Unknown]. A peer is a remote address. Long-polls have
// limits of their own, so that they never keep a probe from its answer.
type Limits struct {
	Questions, QuestionsPerPeer int // answered at once from memory; default 4,096 and 1,024
	Polls, PollsPerPeer         int // waiting; default 16,384 and 8,192
	Witnesses, WitnessesPerPeer int // each sends a probe; default 256 and 64
}

func (l Limits) withDefaults() Limits {
	for _, d := range [...]struct {
		limit     *int
		otherwise int
	}{
		{&l.Questions, 4096},
		{&l.QuestionsPerPeer, 1024},
		{&l.Polls, 16384},
		{&l.PollsPerPeer, 8192},
		{&l.Witnesses, 256},
		{&l.WitnessesPerPeer, 64},
	} {
		if *d.limit <= 0 {
			*d.limit = d.otherwise
		}
	}
	return l
}

// gate counts who is inside.
type gate struct {
	total, perPeer int

	mu     sync.Mutex
	inside int
	peers  map[netip.Addr]int
}

// enter lets the peer in, if there is room. leave must be called once.
func (g *gate) enter(peer netip.Addr) (leave func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside >= g.total || g.peers[peer] >= g.perPeer {
		return nil, false
	}
	if g.peers == nil {
		g.peers = make(map[netip.Addr]int)
	}
	g.inside++
	g.peers[peer]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.inside--
		if g.peers[peer]--; g.peers[peer] == 0 {
			delete(g.peers, peer)
		}
	}, true
}

// remote is the peer's address; the zero Addr is shared by all who have none.
func remote(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr().Unmap()
}
