package compose_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/probate-dev/probate/records/postgres/postgrestest"
	"github.com/probate-dev/probate/tests/fleet"
)

// topology is compose.yaml as processes of this host: each service's command
// with its environment and its files. Only addresses are other ones: a service
// is an address of the loopback network, a port there is one that was free.
type topology struct {
	project   *types.Project
	programs  map[string]string // by what a command or an entrypoint calls them
	database  string            // stands in for the one in compose.yaml
	addresses map[string]string // by service and port, such as node-1:8080
	processes map[string]*fleet.Process
}

// composeDatabase is the database's URL in compose.yaml.
const composeDatabase = "postgres://probate:probate@db:5432/probate?sslmode=disable"

func newTopology(t *testing.T) *topology {
	t.Helper()
	fleet.DependOnSources(t)
	images := buildAsInTheImage(t)
	migrate := filepath.Join(t.TempDir(), "migrate")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "postgres", "-o", migrate, "github.com/golang-migrate/migrate/v4/cmd/migrate")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the migrate tool: %v\n%s", err, out)
	}
	p := &topology{
		project: load(t), database: postgrestest.Shared(t).Empty(t), addresses: map[string]string{}, processes: map[string]*fleet.Process{},
		programs: map[string]string{
			"/probate": filepath.Join(images, "probate"), "/upstream": filepath.Join(images, "upstream"),
			"migrate": migrate, "haproxy": haproxy(),
		},
	}
	checkStatic(t, p.programs["/probate"])
	checkStatic(t, p.programs["/upstream"])
	return p
}

func haproxy() string {
	if path, err := exec.LookPath("haproxy"); err == nil {
		return path
	}
	return "/usr/sbin/haproxy" // where Debian has it, which is not on everybody's path
}

// entrypoints are those of the images that are not ours.
var entrypoints = map[string]string{"migrate/migrate": "migrate"}

// address is where a port of a service is. The kernel chose it once, on an
// address that nothing else uses, so a process finds it free again.
func (p *topology) address(t *testing.T, service, port string) string {
	t.Helper()
	name := service + ":" + port
	if p.addresses[name] == "" {
		host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), 1+rand.IntN(250), 1+rand.IntN(250))
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		p.addresses[name] = l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return p.addresses[name]
}

// ownPort is a port of the service itself.
var ownPort = regexp.MustCompile(`(^|127\.0\.0\.1):(\d+)`)

// here rewrites a word of a service for this host.
func (p *topology) here(t *testing.T, s types.ServiceConfig, word string) string {
	t.Helper()
	if word == composeDatabase {
		return p.database
	}
	if m := ownPort.FindStringSubmatch(word); m != nil {
		word = strings.Replace(word, m[0], p.address(t, s.Name, m[2]), 1)
	}
	for _, name := range p.project.ServiceNames() {
		other := regexp.MustCompile(`\b` + name + `:(\d+)`)
		word = other.ReplaceAllStringFunc(word, func(m string) string {
			return p.address(t, name, other.FindStringSubmatch(m)[1])
		})
	}
	for _, v := range s.Volumes {
		if v.Type == types.VolumeTypeBind && (word == v.Target || strings.HasPrefix(word, v.Target+"/")) {
			word = v.Source + strings.TrimPrefix(word, v.Target)
		}
	}
	return word
}

// command is what a service runs, or, with args, another command of its image.
func (p *topology) command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	s := service(t, p.project, name)
	words := slices.Clone(args)
	if len(words) == 0 {
		words = slices.Clone(s.Command)
		image, _, _ := strings.Cut(s.Image, ":")
		switch {
		case s.Build != nil:
			words = slices.Insert(words, 0, "/"+s.Build.Target)
		case entrypoints[image] != "":
			words = slices.Insert(words, 0, entrypoints[image])
		}
	}
	program := p.programs[words[0]]
	if program == "" {
		t.Fatalf("%s runs %q, which is not here", name, words[0])
	}
	for i := range words {
		words[i] = p.here(t, s, words[i])
	}
	cmd := exec.CommandContext(t.Context(), program, words[1:]...)
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, variable := range slices.Sorted(maps.Keys(s.Environment)) {
		cmd.Env = append(cmd.Env, variable+"="+p.here(t, s, value(s, variable)))
	}
	if slices.Contains(nodeNames, name) {
		cmd.Env = append(cmd.Env, "PROBATE_INTERNAL_ALLOW=127.0.0.0/8")
	}
	return cmd
}

// start starts a service.
func (p *topology) start(t *testing.T, name string) {
	t.Helper()
	p.processes[name] = fleet.Start(t, name, p.command(t, name))
}

// once runs a service that ends.
func (p *topology) once(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := p.command(t, name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
}

// up starts everything, in the order that compose.yaml demands.
func (p *topology) up(t *testing.T) {
	t.Helper()
	p.once(t, "migrate")
	for _, name := range append([]string{"upstream"}, append(nodeNames, "balancer")...) {
		p.start(t, name)
	}
	for _, name := range nodeNames {
		p.awaitHealthy(t, name)
	}
}

// awaitHealthy waits until a node is what its health check calls healthy.
func (p *topology) awaitHealthy(t *testing.T, name string) {
	t.Helper()
	check := service(t, p.project, name).HealthCheck.Test
	if len(check) < 2 || check[0] != "CMD" {
		t.Fatalf("%s has the health check %q", name, check)
	}
	fleet.Await(t, name+" is healthy", func() bool {
		if p.processes[name].Ended() {
			t.Fatalf("%s has ended", name)
		}
		return p.command(t, name, check[1:]...).Run() == nil
	})
}
