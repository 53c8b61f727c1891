package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// process is what the operating system gives to a program.
type process struct {
	args     []string
	in       io.Reader
	out, err io.Writer
	environ  []string
	signals  <-chan os.Signal // SIGINT, SIGTERM, SIGHUP
	deaf     func()           // lets the next signal end the program
}

// cli is the grammar of the command line.
type cli struct {
	Output string `short:"o" enum:"table,json" default:"table" help:"How results are written: ${enum}."`
	Config string `placeholder:"FILE" help:"Configuration file. Default: $$PROBATE_CONFIG, else probate.yaml here if there is one."`

	Serve      serveCmd      `cmd:"" help:"Run a node: the gateway, and its place in the fleet."`
	Migrate    migrateCmd    `cmd:"" help:"Bring the store's schema up to date, or look at it."`
	Probe      probeCmd      `cmd:"" help:"Ask a node whether it serves, or whether it runs a record."`
	Records    recordsCmd    `cmd:"" help:"Look at what was asked and answered, and put right what is stuck."`
	Executors  executorsCmd  `cmd:"" help:"Look at who runs, or declare a process dead."`
	Operators  operatorsCmd  `cmd:"" help:"Let operators in."`
	Flows      flowsCmd      `cmd:"" help:"Look at data flows, or end one."`
	Fleet      fleetCmd      `cmd:"" help:"The cluster as a whole."`
	Seal       sealCmd       `cmd:"" help:"Keys that seal what is stored."`
	Purge      purgeCmd      `cmd:"" help:"Delete what has expired, now."`
	Bench      benchCmd      `cmd:"" help:"Measure a node: requests a second, percentiles, statements a request."`
	Demo       demoCmd       `cmd:"" help:"Watch a payment survive the death of the node that makes it."`
	Doctor     doctorCmd     `cmd:"" help:"Check this host's set-up, and say what to do."`
	Version    versionCmd    `cmd:"" help:"Say what this program is."`
	Completion completionCmd `cmd:"" help:"Print a script that completes this command line in a shell."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:"" passthrough:""`
}

const description = `Probate makes a request that carries an Idempotency-Key take effect once across a fleet of nodes.

A setting is read from the configuration file, then the environment, then the command line: takeover.lease_ttl in the file ` +
	`is PROBATE_TAKEOVER_LEASE_TTL in the environment and --takeover.lease-ttl here. DATABASE_URL is honoured. ` +
	`Colours are used on a terminal, unless NO_COLOR is set.

` + exitCodes

// env is what a subcommand works with.
type env struct {
	process
	file    string
	json    bool
	colours bool
	environ map[string]string
	model   *kong.Application
}

// exited is what replaces the end of the process where kong asks for it.
type exited int

// run does what the command line says and returns the exit code.
func run(ctx context.Context, p process) (code int) {
	var c cli
	e := &env{process: p, environ: environMap(p.environ)}
	e.colours = e.isTerminal(p.out) && e.environ["NO_COLOR"] == "" && e.environ["TERM"] != "dumb"
	defer func() {
		if r := recover(); r != nil {
			end, ours := r.(exited)
			if !ours {
				panic(r)
			}
			code = int(end)
		}
	}()
	c.offerSettings()
	parser, err := kong.New(&c, kong.Name("probate"), kong.Description(description),
		kong.Writers(p.out, p.err), kong.Exit(func(code int) { panic(exited(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120, NoExpandSubcommands: true}))
	if err != nil {
		e.complain(err)
		return exitFailed
	}
	e.model = parser.Model
	parsed, err := parser.Parse(orHelp(p.args))
	if err != nil {
		e.complain(err)
		if pe, ok := errors.AsType[*kong.ParseError](err); ok {
			e.say("%s", usage(pe.Context))
		}
		return exitUsage
	}
	e.json, e.file = c.Output == "json", e.configFile(c.Config)
	if parsed.Command() != "serve" {
		var stop func() bool
		ctx, stop = e.untilSignal(ctx)
		defer stop()
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	if err := parsed.Run(e); err != nil {
		e.complain(err)
		return exitCode(err)
	}
	return exitDone
}

// usage says how the command is called that was meant, as far as it was given.
func usage(c *kong.Context) string {
	name, rest := c.Model.Name, c.Model.Summary()
	if meant := c.Selected(); meant != nil {
		name, rest = name+" "+meant.Path(), " "+meant.Summary()
	}
	return fmt.Sprintf("Usage: %s%s\n%s --help says more.\n", c.Model.Name, rest, name)
}

// orHelp makes no arguments at all a question for help.
func orHelp(args []string) []string {
	if len(args) == 0 {
		return []string{"--help"}
	}
	return args
}

var errInterrupted = errors.New("interrupted")

// untilSignal is a context that the first signal ends, but for those to
// ignore. stop takes no more signals, and reports whether there was one.
func (e *env) untilSignal(ctx context.Context, ignored ...os.Signal) (_ context.Context, stop func() (interrupted bool)) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan bool, 1)
	go func() {
		for {
			select {
			case s := <-e.signals:
				if slices.Contains(ignored, s) {
					continue
				}
				e.deaf()
				cancel(errInterrupted)
				done <- true
			case <-ctx.Done():
				done <- false
			}
			return
		}
	}()
	return ctx, func() bool {
		cancel(nil)
		return <-done
	}
}

// configFile is the file to read; "": none.
func (e *env) configFile(given string) string {
	if given != "" {
		return given
	}
	if name := e.environ["PROBATE_CONFIG"]; name != "" {
		return name
	}
	if _, err := os.Stat("probate.yaml"); err == nil {
		return "probate.yaml"
	}
	return ""
}

// environMap is the environment by name.
func environMap(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, line := range environ {
		if name, value, ok := strings.Cut(line, "="); ok {
			m[name] = value
		}
	}
	return m
}

// offerSettings gives the commands flags for settings: all of them where a
// node is described, else those for reaching the store and the nodes.
func (c *cli) offerSettings() {
	all := func(string) bool { return true }
	store := func(path string) bool {
		return slices.Contains([]string{"store", "cluster", "pooler", "seal.keys_file"}, path)
	}
	nodes := func(path string) bool {
		return store(path) || strings.HasPrefix(path, "internal.") && path != "internal.listen" && path != "internal.advertise" ||
			path == "takeover.dial_timeout" || path == "takeover.header_timeout"
	}
	c.Serve.Settings = settingFlags(all)
	c.Doctor.Settings = settingFlags(all)
	c.Bench.Settings = settingFlags(all)
	c.Probe.Settings = settingFlags(nodes)
	for _, plugins := range []*kong.Plugins{
		&c.Records.List.Settings, &c.Records.Show.Settings, &c.Records.Release.Settings, &c.Records.Resolve.Settings,
		&c.Records.Reconcile.Settings, &c.Records.Erase.Settings,
		&c.Executors.List.Settings, &c.Executors.Show.Settings, &c.Executors.Fence.Settings,
	} {
		*plugins = settingFlags(nodes)
	}
	for _, plugins := range []*kong.Plugins{
		&c.Fleet.Rekey.Settings, &c.Purge.Settings,
		&c.Migrate.Up.Settings, &c.Migrate.Down.Settings, &c.Migrate.Status.Settings, &c.Migrate.Version.Settings,
	} {
		*plugins = settingFlags(store)
	}
}

// settingFlags makes a struct with a flag for each wanted leaf of [Config]:
// kong takes its flags from struct tags, so they are made from its leaves.
func settingFlags(wanted func(path string) bool) kong.Plugins {
	c := defaultConfig()
	var fields []reflect.StructField
	for _, l := range leaves(reflect.ValueOf(&c).Elem(), "") {
		if !wanted(l.path) {
			continue
		}
		tag := fmt.Sprintf(`name:%q help:%q placeholder:%q setting:%q`, flagName(l.path), l.help, placeholder(l.value), l.path)
		fields = append(fields, reflect.StructField{
			Name: fmt.Sprintf("Setting%d", len(fields)), Type: reflect.TypeFor[*string](), Tag: reflect.StructTag(tag),
		})
	}
	return kong.Plugins{reflect.New(reflect.StructOf(fields)).Interface()}
}

// placeholder shows a setting's default, or what kind of value it takes.
func placeholder(v reflect.Value) string {
	if s := fmt.Sprint(v.Interface()); s != "" && s != "[]" {
		return s
	}
	return "…"
}

// given are the settings that the command line has, by path.
func given(plugins kong.Plugins) map[string]string {
	words := map[string]string{}
	for _, p := range plugins {
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			if word, ok := reflect.TypeAssert[*string](v.Field(i)); ok && word != nil {
				words[v.Type().Field(i).Tag.Get("setting")] = *word
			}
		}
	}
	return words
}

// settings reads from what this command was given.
func (e *env) settings(flags kong.Plugins) settings {
	return settings{file: e.file, environ: e.environ, flags: given(flags)}
}
