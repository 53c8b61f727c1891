package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/postgres"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/takeover"
)

// Config is what a node can be told. Each key is documented, with its default,
// in probate.example.yaml.
type Config struct {
	Store       string `yaml:"store" help:"Where records are kept: postgres://… or sqlite:FILE."`
	Pooler      string `yaml:"pooler" help:"Set to transaction behind PgBouncer in transaction mode."`
	Connections int    `yaml:"connections" help:"PostgreSQL connections for records; three more are for control."`
	Cluster     string `yaml:"cluster" help:"Name of the fleet; a store belongs to one."`
	Slot        string `yaml:"slot" help:"The stable place this process runs in; default the advertised host:port."`
	Listen      string `yaml:"listen" help:"Public address."`
	Probe       string `yaml:"probe_path" help:"Path of the health check on the public listener; - for none."`

	PassThrough  string `yaml:"pass_through" help:"Upstream of requests that no route matches; empty: 404."`
	ProblemTypes string `yaml:"problem_types" help:"What comes before the code in the type of a problem document."`
	MemoryBytes  int    `yaml:"memory_bytes" help:"Finalized responses kept in memory for replays; -1 for none."`

	TLS PublicTLS `yaml:"tls"`

	Seal   Seal     `yaml:"seal"`
	Redact []string `yaml:"redact" help:"Response headers that are never stored, on any route."`

	Internal  Internal  `yaml:"internal"`
	Operators Operators `yaml:"operators"`
	Wait      Wait      `yaml:"wait"`
	Takeover  Takeover  `yaml:"takeover"`
	Audit     Audit     `yaml:"audit"`
	Log       Log       `yaml:"log"`

	Routes    []Route   `yaml:"routes"`
	Dataflows Dataflows `yaml:"dataflows"`

	sealKeys sealed.Keys // from the file that Seal names, or the environment
}

// Internal is the listener that peers, balancers and operators use.
type Internal struct {
	Listen    string   `yaml:"listen" help:"Internal address."`
	Advertise string   `yaml:"advertise" help:"URL at which peers reach this node's internal listener."`
	Allow     []string `yaml:"allow" help:"Networks that peers may be dialled in."`
	Token     string   `yaml:"token" help:"Bearer token that the fleet's probes share."`
	TLS       TLS      `yaml:"tls"`
}

// TLS secures the internal listener, both ways.
type TLS struct {
	Cert string `yaml:"cert" help:"Certificate file of this node."`
	Key  string `yaml:"key" help:"Key file of this node."`
	CA   string `yaml:"ca" help:"Certificates that peers must be signed by."`
}

// Operators are who may use /v1 of the internal listener.
type Operators struct {
	TokensFile string `yaml:"tokens_file" help:"Operators and hashes of their tokens; empty: no operator API."`
}

// Wait bounds the duplicates that wait.
type Wait struct {
	Default  time.Duration `yaml:"default" help:"How long a duplicate waits for the answer."`
	Max      time.Duration `yaml:"max" help:"How long a client may ask to wait."`
	PerKey   int           `yaml:"per_key" help:"Duplicates that wait for one key."`
	PerRealm int           `yaml:"per_realm" help:"Duplicates that wait in one realm."`
	PerNode  int           `yaml:"per_node" help:"Duplicates that wait on this node."`
}

// Takeover sets the times of the protocol.
type Takeover struct {
	Policy           string        `yaml:"policy" help:"What may fence this node: probe or lease."`
	Heartbeat        time.Duration `yaml:"heartbeat" help:"Interval of heartbeats."`
	StatementTimeout time.Duration `yaml:"statement_timeout" help:"Limit of a control statement."`
	LeaseTTL         time.Duration `yaml:"lease_ttl" help:"How long one heartbeat keeps this node alive."`
	Margin           time.Duration `yaml:"margin" help:"How long before that it stops its own work."`
	ConfirmDown      time.Duration `yaml:"confirm_down" help:"How long a refused connection is confirmed."`
	ProbeBudget      time.Duration `yaml:"probe_budget" help:"How long silence is confirmed."`
	DialTimeout      time.Duration `yaml:"dial_timeout" help:"Limit of connecting to a peer."`
	HeaderTimeout    time.Duration `yaml:"header_timeout" help:"Limit of a peer's first word."`
	Takeovers        int           `yaml:"takeovers" help:"Executions of one record after take-overs."`
	DrainDelay       time.Duration `yaml:"drain_delay" help:"How long requests are still taken after readiness failed at a drain."`
	DrainTimeout     time.Duration `yaml:"drain_timeout" help:"How long a drain may take."`
	SweepEvery       time.Duration `yaml:"sweep_every" help:"How often records of dead nodes are looked for."`
	PurgeEvery       time.Duration `yaml:"purge_every" help:"How often expired records are deleted."`
	Grace            time.Duration `yaml:"grace" help:"How long an expired record is still remembered."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" help:"debug, info, warn or error."`
	Format string `yaml:"format" help:"text or json."`
}

// defaultConfig is what holds where nothing is said.
func defaultConfig() Config {
	t := takeover.Config{}.WithDefaults()
	return Config{
		Store: "sqlite:probate.db", Connections: postgres.DefaultConnections, Cluster: "probate", Listen: ":8080", Probe: "/probe",
		ProblemTypes: api.DefaultProblemTypes, MemoryBytes: t.MemoryBytes,
		Internal: Internal{Listen: "127.0.0.1:8081"},
		Wait: Wait{
			Default: api.DefaultWait, Max: api.DefaultMaxWait,
			PerKey: t.WaitersPerKey, PerRealm: t.WaitersPerRealm, PerNode: t.WaitersPerNode,
		},
		Takeover: Takeover{
			Policy: string(t.Policy), Heartbeat: t.Heartbeat, StatementTimeout: t.StatementTimeout,
			LeaseTTL: t.LeaseTTL, Margin: t.Margin, ConfirmDown: t.ConfirmDown, ProbeBudget: t.ProbeBudget,
			DialTimeout: t.DialTimeout, HeaderTimeout: t.HeaderTimeout, Takeovers: t.Takeovers,
			DrainTimeout: t.DrainTimeout, SweepEvery: t.SweepEvery, PurgeEvery: t.PurgeEvery, Grace: records.DefaultGrace,
		},
		Audit:     Audit{Level: auditUnusual, Retention: t.EventRetention},
		Log:       Log{Level: "info", Format: "text"},
		Dataflows: defaultDataflows(),
	}
}

// takeover is the part of the configuration that package takeover reads.
func (c Config) takeover() takeover.Config {
	return takeover.Config{
		Slot: c.Slot, URL: c.Internal.Advertise, Policy: records.Policy(c.Takeover.Policy),
		Heartbeat: c.Takeover.Heartbeat, StatementTimeout: c.Takeover.StatementTimeout,
		LeaseTTL: c.Takeover.LeaseTTL, Margin: c.Takeover.Margin,
		ConfirmDown: c.Takeover.ConfirmDown, ProbeBudget: c.Takeover.ProbeBudget,
		DialTimeout: c.Takeover.DialTimeout, HeaderTimeout: c.Takeover.HeaderTimeout,
		Takeovers: c.Takeover.Takeovers, DrainTimeout: c.Takeover.DrainTimeout,
		SweepEvery: c.Takeover.SweepEvery, PurgeEvery: c.Takeover.PurgeEvery,
		WaitersPerKey: c.Wait.PerKey, WaitersPerRealm: c.Wait.PerRealm, WaitersPerNode: c.Wait.PerNode,
		MemoryBytes: c.MemoryBytes, EventRetention: c.Audit.Retention,
	}
}

// gateway is the part of the configuration that package api reads.
func (c Config) gateway() api.Config {
	routes := make([]api.Route, len(c.Routes))
	for i, r := range c.Routes {
		routes[i] = r.api()
	}
	return api.Config{
		Routes: routes, PassThrough: c.PassThrough, ProblemTypes: c.ProblemTypes, Redact: c.Redact,
		Wait: api.Wait{Default: c.Wait.Default, Max: c.Wait.Max},
	}
}

// readConfig reads the file, the environment and the flags, and reports every
// fault at once.
func readConfig(s settings) (Config, error) {
	c := s.readAll()
	c.readSeal(&s)
	c.check(&s)
	return c, faulted(s.faults)
}

// storeConfig is the configuration for a command that only looks at the store
// or asks nodes: what is wrong elsewhere, or is known only where a node runs,
// does not matter to it.
func (e *env) storeConfig(flags kong.Plugins) (Config, error) {
	s := e.settings(flags)
	c := s.readAll()
	c.readSeal(&s)
	c.checkStore(&s)
	c.checkTLS(&s)
	if _, err := c.allowed(); err != nil {
		s.doubt("internal.allow", "%v", err)
	}
	return c, faulted(slices.DeleteFunc(s.faults, func(err error) bool {
		f, ok := errors.AsType[*fault](err)
		if !ok {
			return false
		}
		top, _, _ := strings.Cut(f.path, ".")
		return !slices.Contains([]string{"store", "pooler", "connections", "cluster", "seal", sealVariable, "internal", "takeover"}, top)
	}))
}

// readAll reads without looking at what it means.
func (s *settings) readAll() Config {
	c := defaultConfig()
	if dsn := s.environ["DATABASE_URL"]; dsn != "" {
		c.Store = dsn
	}
	_ = s.read(&c) // its faults are reported with those of the check
	return c
}

func faulted(faults []error) error {
	if len(faults) == 0 {
		return nil
	}
	return configError{fmt.Errorf("configuration:\n%w", errors.Join(inOrder(faults)...))}
}
