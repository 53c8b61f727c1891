package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/probate-dev/probate/records"
)

// demoSizeLimit is the largest file that the demo copies, in megabytes.
const demoSizeLimit = 10_000

// demoFlowConfig is what each node is told about data. The dataset has another
// name in every demo: a node of a later one must not go on with what an
// interrupted one has left in PostgreSQL.
const demoFlowConfig = `dataflows:
  enabled: true
  control_plane: {url: %q}
  answer: async
  note_every: 500ms
  retention: 1m
  roots: [{name: out, path: %q, write: true, shared: true}]
  datasets: [{id: %s, http: {url: %q}}]
`

// demoFlow is the demo of a data flow: what stands around the nodes, and what
// is seen of the copy.
type demoFlow struct {
	story   *story
	size    int64
	id      string // of the flow, and in the dataset's name
	sink    string // folder
	source  *demoSource
	control *controlPlane
	bar     bar

	seen os.FileInfo // of the file, when it was first seen under its name
}

// demoCopy is what became of a copy.
type demoCopy struct {
	Bytes  int64      `json:"bytes"`
	SHA256 string     `json:"sha256"` // of the file at the sink
	Reads  []demoRead `json:"reads"`  // of the source
}

// demoRead is one request that the source was sent.
type demoRead struct {
	From int64 `json:"from"`
	Sent int64 `json:"sent"`
}

func (c *demoCopy) lines() []string {
	var lines []string
	for _, r := range c.Reads {
		lines = append(lines, fmt.Sprintf("%s read at the source, from byte %d on", megabytes(r.Sent), r.From))
	}
	return append(lines, fmt.Sprintf("%s at the sink, SHA-256 %s", megabytes(c.Bytes), c.SHA256))
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

func newDemoFlow(s *story, size int64) *demoFlow {
	f := &demoFlow{story: s, size: size, id: uuid.NewString()}
	f.bar = bar{w: s.live, total: size, drawn: s.live != nil && s.env.isTerminal(s.env.out) && s.env.environ["TERM"] != "dumb"}
	return f
}

func (f *demoFlow) dataset() string { return "file-" + f.id }

// final is where the file has to appear.
func (f *demoFlow) final() string { return filepath.Join(f.sink, "file.bin") }

// open makes the source, the sink and the control plane.
func (f *demoFlow) open(ctx context.Context) (err error) {
	f.sink = filepath.Join(f.story.folder, "out")
	if err := os.Mkdir(f.sink, 0o750); err != nil {
		return err
	}
	if f.source, err = openSource(ctx, &f.story.script, filepath.Join(f.story.folder, "source.bin"), f.size); err != nil {
		return err
	}
	f.control, err = openControlPlane(ctx, f)
	return err
}

func (f *demoFlow) close() {
	if f.control != nil {
		f.control.close()
	}
	if f.source != nil {
		f.source.close()
	}
}

func (f *demoFlow) appendConfig(c []byte) []byte {
	return fmt.Appendf(c, demoFlowConfig, f.control.url, f.sink, f.dataset(), f.source.url)
}

// flush shows what was told, above the bar.
func (f *demoFlow) flush() {
	f.bar.clear()
	f.story.flush()
}

// play lets happen what the demo is about.
func (f *demoFlow) play(ctx context.Context) error {
	defer f.bar.clear()
	s := f.story
	if _, err := f.control.start(ctx, s.balancer.url); err != nil {
		return err
	}
	held, owner, err := f.owner(ctx)
	if err != nil {
		return err
	}
	f.flush()
	if err := f.follow(ctx, owner, "half of it is copied", func(p flowProgress) bool {
		return p.Bytes >= f.size/2 && p.SafeBytes > 0 && f.control.told("started") > 0
	}); err != nil {
		return err
	}
	other := s.otherThan(owner)
	if err := f.repeat(ctx, owner, other, held); err != nil {
		return err
	}
	if err := s.kill(ctx, owner, held, "half way"); err != nil {
		return err
	}
	f.source.release()
	left, err := f.control.progress(ctx, other)
	if err != nil {
		return err
	}
	s.say("store", "%s are safe with a checkpoint, of what %s has copied", megabytes(left.SafeBytes), owner.name)
	return f.succeed(ctx, held, owner, left.SafeBytes)
}

// owner finds out who copies.
func (f *demoFlow) owner(ctx context.Context) (records.Held, *actor, error) {
	flows, ok := flowsOf(f.story.store)
	if !ok {
		return records.Held{}, nil, errors.New("this store keeps no data flows")
	}
	flow, err := flows.LoadFlow(ctx, f.id)
	if err != nil {
		return records.Held{}, nil, err
	}
	held, err := f.story.store.Load(ctx, flow.Flow.Record)
	if err != nil {
		return held, nil, err
	}
	a, err := f.story.executorOf(held)
	return held, a, err
}

// otherThan is a node that lives and is not a.
func (s *story) otherThan(a *actor) *actor {
	for _, o := range s.nodes {
		if o != a && !o.ended() {
			return o
		}
	}
	return a
}

// follow shows how far the copy is, as a node says, until that is far enough.
func (f *demoFlow) follow(ctx context.Context, who *actor, what string, enough func(flowProgress) bool) error {
	var looked time.Time
	var failed error
	err := f.story.await(ctx, what, func() bool {
		f.look()
		if time.Since(looked) < 50*time.Millisecond {
			return false
		}
		looked = time.Now()
		p, err := f.control.progress(ctx, who)
		switch {
		case err != nil:
			failed = err
			return true
		case p.State == "TERMINATED":
			failed = fmt.Errorf("the flow is TERMINATED: %s", p.Error)
			return true
		}
		if f.bar.at(p.Bytes, who.name) { // nobody draws: it is told
			f.story.say(who.name, "has copied %s of %s", megabytes(p.Bytes), megabytes(f.size))
		}
		if f.story.news() {
			f.flush()
		}
		return enough(p)
	})
	f.look()
	f.bar.clear() // for whatever comes next
	return errors.Join(err, failed)
}

// look notes the file when it is first seen under its name.
func (f *demoFlow) look() {
	if info, err := os.Stat(f.final()); f.seen == nil && err == nil {
		f.seen = info
	}
}

// repeat sends the start again while the owner copies.
func (f *demoFlow) repeat(ctx context.Context, owner, other *actor, held records.Held) error {
	s := f.story
	again, err := f.control.start(ctx, other.public)
	if err != nil {
		return err
	}
	s.claim("a start that is repeated at another node finds the copy, and begins none",
		again.replayed && again.state == "STARTED" && len(f.source.reads()) == 1, fmt.Sprintf("%s, the source is read %d times", again.state, len(f.source.reads())))
	return s.vouch(ctx, owner, held)
}

// succeed repeats the start once more, now that the owner is dead, and follows
// the copy to its end.
func (f *demoFlow) succeed(ctx context.Context, held records.Held, owner *actor, safe int64) error {
	s := f.story
	again, err := f.control.start(ctx, s.balancer.url)
	if err != nil {
		return err
	}
	s.report.TakeoverMS = (time.Since(s.begun) - s.killed()).Milliseconds()
	flow, successor, err := f.owner(ctx)
	if err != nil {
		return err
	}
	f.flush()
	s.claim("a start that is repeated now is answered by what is, not by an error", again.replayed && again.state == "STARTED", again.state)
	if err := s.claimFenced(ctx, owner, held); err != nil {
		return err
	}
	s.claim("its copy was taken over at the next epoch", flow.Record.Epoch == held.Record.Epoch+1 && successor != owner,
		fmt.Sprintf("%s at epoch %d", successor.name, flow.Record.Epoch))
	if err := f.follow(ctx, successor, "the copy is complete", func(p flowProgress) bool { return p.State == "COMPLETED" }); err != nil {
		return err
	}
	if err := s.await(ctx, "the control plane is told", func() bool { return f.control.told("completed") > 0 }); err != nil {
		return err
	}
	f.flush()
	return f.conclude(ctx, successor, safe)
}

// conclude compares what there is with what was claimed.
func (f *demoFlow) conclude(ctx context.Context, successor *actor, safe int64) error {
	s := f.story
	last, err := f.control.start(ctx, s.otherThan(successor).public)
	if err != nil {
		return err
	}
	said, err := f.control.progress(ctx, successor)
	if err != nil {
		return err
	}
	is, sum, err := digest(f.final())
	if err != nil {
		return err
	}
	reads := f.source.reads()
	s.report.Copy = &demoCopy{Bytes: is.Size(), SHA256: sum, Reads: reads}
	// A write that was on its way when its node died may still have landed.
	resumed := len(reads) == 2 && reads[1].From >= safe && reads[1].From+reads[1].Sent == f.size
	s.claim("the source was read on from the checkpoint, not from its beginning", resumed && safe > 0, fmt.Sprintf("%v, checkpoint at %d", reads, safe))
	s.claim("the file has the source's digest, and so has the status", sum == f.source.sum && said.SHA256 == sum, fmt.Sprintf("%s, %s, %s", f.source.sum, sum, said.SHA256))
	once := f.seen != nil && os.SameFile(f.seen, is) && f.seen.Size() == f.size && f.seen.ModTime().Equal(is.ModTime())
	s.claim("the file was seen under its name only when it was whole, and once", once, "")
	left, err := os.ReadDir(f.sink)
	s.claim("nothing else is left at the sink", err == nil && len(left) == 1, fmt.Sprintf("%v, %v", left, err))
	s.claim("the control plane was told started and completed, once each", f.control.told("started") == 1 && f.control.told("completed") == 1 && f.control.told("") == 2,
		fmt.Sprintf("%d started, %d completed of %d", f.control.told("started"), f.control.told("completed"), f.control.told("")))
	s.claim("a start that is repeated after the end moves nothing", last.replayed && last.state == "COMPLETED" && len(f.source.reads()) == len(reads), last.state)
	f.flush()
	return nil
}

// digest reads a file.
func digest(name string) (os.FileInfo, string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = file.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return nil, "", err
	}
	info, err := file.Stat()
	return info, hex.EncodeToString(h.Sum(nil)), err
}
