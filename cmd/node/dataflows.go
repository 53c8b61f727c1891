package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/probate-dev/probate/transfer"
)

// Dataflows is the data plane, as a file says it.
type Dataflows struct {
	Enabled   bool   `yaml:"enabled" help:"Move data for a dataspace's control plane, at /dataflows."`
	PublicURL string `yaml:"public_url" help:"Where consumers and providers reach this fleet's /dataflows."`

	TokensFile string   `yaml:"tokens_file" help:"Bearer tokens of control planes, one a line."`
	Tokens     []string `yaml:"tokens" help:"Bearer tokens of control planes."`

	ControlPlane ControlPlane `yaml:"control_plane"`
	Registration Registration `yaml:"registration"`

	Answer         string `yaml:"answer" help:"How a start and a prepare are answered: sync (200) or async (202, and a callback)."`
	DuplicateStart string `yaml:"duplicate_start" help:"A start of a flow that exists: replay, or reject."`

	Flows        int           `yaml:"flows" help:"Copies at once."`
	Queue        int           `yaml:"queue" help:"Flows that wait for their turn."`
	MaxBytes     int64         `yaml:"max_bytes" help:"Bytes of one flow; 0 for no limit."`
	StallTimeout time.Duration `yaml:"stall_timeout" help:"How long an end may move no byte."`
	Rounds       int           `yaml:"rounds" help:"Copies that came no further before a flow fails."`
	NoteEvery    time.Duration `yaml:"note_every" help:"How often progress is written."`
	StrayEvery   time.Duration `yaml:"stray_every" help:"How often flows are looked for that nobody moves."`
	WorkTimeout  time.Duration `yaml:"work_timeout" help:"How long one execution may take."`
	Retention    time.Duration `yaml:"retention" help:"How long a flow is remembered that has ended."`

	Roots     []FileRoot `yaml:"roots"`
	Datasets  []Dataset  `yaml:"datasets"`
	Sources   Sources    `yaml:"sources"`
	Sinks     Sinks      `yaml:"sinks"`
	ReceiveIn string     `yaml:"receive_in" help:"Root in which pushes to this fleet are received."`
	Networks  []string   `yaml:"networks" help:"Networks that sources and sinks may be in."`
}

// ControlPlane is who is told what becomes of flows.
type ControlPlane struct {
	URL     string        `yaml:"url" help:"Where callbacks go that have no address of their own."`
	Token   string        `yaml:"token" help:"Bearer token that goes with callbacks."`
	Allow   []string      `yaml:"allow" help:"Beginnings of addresses that messages may name for callbacks."`
	Timeout time.Duration `yaml:"timeout" help:"How long one delivery may take."`
	Pause   time.Duration `yaml:"pause" help:"How long after a failed delivery the next is tried; it doubles."`
	GiveUp  time.Duration `yaml:"give_up" help:"How old a callback may become."`
}

// Registration tells the control plane about this data plane when it starts.
type Registration struct {
	URL      string   `yaml:"url" help:"The control plane's management address; empty: nobody is told."`
	Token    string   `yaml:"token" help:"Bearer token of the management address."`
	ID       string   `yaml:"id" help:"This data plane's name."`
	Profiles []string `yaml:"profiles" help:"Transfer profiles that are offered."`
	Labels   []string `yaml:"labels" help:"Labels that are offered."`
}

// FileRoot is a folder below which files may be read or written.
type FileRoot struct {
	Name   string `yaml:"name"`
	Path   string `yaml:"path"`
	Write  bool   `yaml:"write"`
	Shared bool   `yaml:"shared"`
}

// look reports why the folder cannot be used as it stands now. It may be a
// mount that comes later, so a node starts all the same.
func (r FileRoot) look() error {
	info, err := os.Stat(r.Path)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", r.Path)
	}
	return err
}

// Dataset is something that can be transferred.
type Dataset struct {
	ID   string   `yaml:"id"`
	HTTP HTTPEnd  `yaml:"http"`
	File FileEnd  `yaml:"file"`
	S3   S3Object `yaml:"s3"`
}

// HTTPEnd is a URL to read.
type HTTPEnd struct {
	URL     string        `yaml:"url"`
	Headers []HeaderValue `yaml:"headers"`
}

// FileEnd is a file to read.
type FileEnd struct {
	Root string `yaml:"root"`
	Path string `yaml:"path"`
}

// S3Object is an object to read.
type S3Object struct {
	Endpoint  string `yaml:"endpoint"`
	Region    string `yaml:"region"`
	Bucket    string `yaml:"bucket"`
	Key       string `yaml:"key"`
	AccessKey string `yaml:"access_key"`
	SecretKey string `yaml:"secret_key"`
}

// Sources says what a message may name as its source, for a dataset that is not
// listed.
type Sources struct {
	HTTP  []string   `yaml:"http" help:"Beginnings of the addresses that a message may name as its source; * is any."`
	Roots []string   `yaml:"roots" help:"Roots from which a message may name a file as its source."`
	S3    []S3Source `yaml:"s3"`
}

// S3Source is a store of which a message may name objects as its source.
type S3Source struct {
	Endpoint  string `yaml:"endpoint"`
	Region    string `yaml:"region"`
	Bucket    string `yaml:"bucket"`
	AccessKey string `yaml:"access_key"`
	SecretKey string `yaml:"secret_key"`
}

// Sinks says where may be pushed to; files go to roots with write.
type Sinks struct {
	HTTP []string  `yaml:"http" help:"Beginnings of the addresses that may be pushed to; * is any."`
	S3   []S3Store `yaml:"s3"`
}

// S3Store is a store that may be written to.
type S3Store struct {
	Endpoint  string `yaml:"endpoint"`
	Region    string `yaml:"region"`
	Bucket    string `yaml:"bucket"`
	AccessKey string `yaml:"access_key"`
	SecretKey string `yaml:"secret_key"`
	Exclusive bool   `yaml:"exclusive"`
}

// defaultDataflows is what holds where nothing is said.
func defaultDataflows() Dataflows {
	return Dataflows{
		ControlPlane: ControlPlane{Timeout: 10 * time.Second, Pause: time.Second, GiveUp: 7 * 24 * time.Hour},
		Answer:       "sync", DuplicateStart: "replay", Flows: 16, Queue: 64,
		Rounds: 5, StallTimeout: 30 * time.Second, NoteEvery: 5 * time.Second, StrayEvery: 5 * time.Second,
		WorkTimeout: 7 * 24 * time.Hour, Retention: 30 * 24 * time.Hour,
	}
}

// transfer is the part of the configuration that package transfer reads.
func (d Dataflows) transfer() transfer.Config {
	return transfer.Config{
		PublicURL: d.PublicURL, ControlPlane: d.ControlPlane.URL, CallbackToken: d.ControlPlane.Token, CallbackAllow: d.ControlPlane.Allow,
		CallbackTimeout: d.ControlPlane.Timeout, CallbackPause: d.ControlPlane.Pause, CallbackGiveUp: d.ControlPlane.GiveUp,
		Async: d.Answer == "async", RejectDuplicates: d.DuplicateStart == "reject",
		Flows: d.Flows, Queue: d.Queue, Rounds: d.Rounds, MaxBytes: d.MaxBytes, StallTimeout: d.StallTimeout, NoteEvery: d.NoteEvery,
		StrayEvery: d.StrayEvery, WorkTimeout: d.WorkTimeout, Retention: d.Retention,
	}
}

// catalogue is what may be read and where may be written.
func (d Dataflows) catalogue() (transfer.Catalogue, error) {
	c := transfer.Catalogue{ReceiveIn: d.ReceiveIn, Sinks: transfer.Sinks{HTTP: d.Sinks.HTTP}}
	for _, r := range d.Roots {
		c.Roots = append(c.Roots, transfer.Root(r))
	}
	for _, s := range d.Datasets {
		c.Datasets = append(c.Datasets, s.transfer())
	}
	c.Sources = transfer.Sources{HTTP: d.Sources.HTTP, Roots: d.Sources.Roots}
	for _, s := range d.Sources.S3 {
		c.Sources.S3 = append(c.Sources.S3, transfer.S3End{
			Endpoint: s.Endpoint, Region: s.Region, Bucket: s.Bucket, AccessKey: s.AccessKey, SecretKey: s.SecretKey,
		})
	}
	for _, s := range d.Sinks.S3 {
		c.Sinks.S3 = append(c.Sinks.S3, transfer.S3Store(s))
	}
	for _, n := range d.Networks {
		p, err := netip.ParsePrefix(n)
		if err != nil {
			return c, fmt.Errorf("networks: %q is no network such as 10.0.0.0/8", n)
		}
		c.Networks = append(c.Networks, p)
	}
	return c, nil
}

func (s Dataset) transfer() transfer.Dataset {
	d := transfer.Dataset{ID: s.ID}
	if s.HTTP.URL != "" {
		d.HTTP = &transfer.HTTPEnd{URL: s.HTTP.URL, Headers: map[string]string{}}
		for _, h := range s.HTTP.Headers {
			d.HTTP.Headers[h.Name] = h.Value
		}
	}
	if s.File != (FileEnd{}) {
		f := transfer.FileEnd(s.File)
		d.File = &f
	}
	if s.S3 != (S3Object{}) {
		o := transfer.S3End(s.S3)
		d.S3 = &o
	}
	return d
}

// tokens are those of the file and those of the configuration.
func (d Dataflows) tokens() ([]string, error) {
	tokens := d.Tokens
	if d.TokensFile == "" {
		return tokens, nil
	}
	f, err := os.Open(d.TokensFile)
	if err != nil {
		return nil, fmt.Errorf("tokens_file: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("tokens_file: %w", err)
	}
	return tokens, nil
}

// checkDataflows reports what cannot work, also while it is not enabled.
func (c Config) checkDataflows(s *settings) {
	d := c.Dataflows
	if d.Answer != "sync" && d.Answer != "async" {
		s.doubt("dataflows.answer", "%q is neither sync nor async", d.Answer)
	}
	if d.DuplicateStart != "replay" && d.DuplicateStart != "reject" {
		s.doubt("dataflows.duplicate_start", "%q is neither replay nor reject", d.DuplicateStart)
	}
	for path, n := range map[string]int64{
		"flows": int64(d.Flows), "queue": int64(d.Queue), "rounds": int64(d.Rounds), "stall_timeout": int64(d.StallTimeout), "note_every": int64(d.NoteEvery), "stray_every": int64(d.StrayEvery),
		"work_timeout": int64(d.WorkTimeout), "retention": int64(d.Retention), "control_plane.timeout": int64(d.ControlPlane.Timeout),
		"control_plane.pause": int64(d.ControlPlane.Pause), "control_plane.give_up": int64(d.ControlPlane.GiveUp),
	} {
		if n <= 0 {
			s.doubt("dataflows."+path, "want more than 0")
		}
	}
	catalogue, err := d.catalogue()
	if err == nil {
		_, err = catalogue.Open()
	}
	config := d.transfer()
	tokens, unread := d.tokens()
	config.Tokens = tokens
	for _, err := range split(errors.Join(err, unread, config.Validate())) {
		path, reason := "dataflows", err.Error()
		if key, rest, found := strings.Cut(reason, ": "); found && s.where[path+"."+key] != "" {
			path, reason = path+"."+key, rest
		}
		s.fault(path, "%s", reason) // no doubt: each is about something else
	}
	if d.Registration.URL != "" && (d.Registration.ID == "" || len(d.Registration.Profiles) == 0 || d.PublicURL == "") {
		s.doubt("dataflows.registration", "wants id and profiles, and dataflows.public_url")
	}
	if d.Enabled && len(tokens) == 0 && unread == nil && c.TLS.ClientCA == "" && !loopback(c.Listen) {
		s.doubt("dataflows.tokens", "missing: whoever reaches listen %q could have data moved; give tokens, tokens_file or tls.client_ca, or listen on loopback", c.Listen)
	}
}

// loopback reports whether only this host can connect to an address.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
