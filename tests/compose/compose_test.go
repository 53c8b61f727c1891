// Package compose_test holds compose.yaml and what it refers to against what
// they promise, and runs all of it as processes.
package compose_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

const root = "../.."

// load reads compose.yaml as docker compose does, with an empty environment.
func load(t *testing.T) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join(root, "compose.yaml")}, cli.WithWorkingDirectory(root), cli.WithDiscardEnvFile)
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func service(t *testing.T, p *types.Project, name string) types.ServiceConfig {
	t.Helper()
	s, err := p.GetService(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var nodeNames = []string{"node-1", "node-2", "node-3"}

// value is a service's environment variable.
func value(s types.ServiceConfig, name string) string {
	if v := s.Environment[name]; v != nil {
		return *v
	}
	return ""
}

func TestCompose(t *testing.T) {
	t.Parallel()
	p := load(t)
	t.Run("HasTheServicesOfAFleet", func(t *testing.T) {
		t.Parallel()
		want := append([]string{"balancer", "db", "migrate"}, append(nodeNames, "upstream")...)
		if got := p.ServiceNames(); !slices.Equal(got, want) {
			t.Errorf("services = %q, want %q", got, want)
		}
	})
	t.Run("AdvertisesEachNodesOwnAddress", func(t *testing.T) {
		t.Parallel()
		for _, name := range nodeNames {
			s := service(t, p, name)
			if got, want := value(s, "PROBATE_INTERNAL_ADVERTISE"), "http://"+name+value(s, "PROBATE_INTERNAL_LISTEN"); got != want {
				t.Errorf("%s advertises %q, want %q", name, got, want)
			}
			if got := value(s, "PROBATE_SLOT"); got != name {
				t.Errorf("%s has slot %q", name, got)
			}
		}
	})
	t.Run("MigratesBeforeANodeStarts", func(t *testing.T) {
		t.Parallel()
		for _, name := range nodeNames {
			if got := service(t, p, name).DependsOn["migrate"].Condition; got != types.ServiceConditionCompletedSuccessfully {
				t.Errorf("%s starts when migrate is %q", name, got)
			}
		}
		if got := service(t, p, "migrate").DependsOn["db"].Condition; got != types.ServiceConditionHealthy {
			t.Errorf("migrate starts when db is %q", got)
		}
	})
	t.Run("PublishesOnlyTheBalancer", func(t *testing.T) {
		t.Parallel()
		for _, name := range p.ServiceNames() {
			if published := len(service(t, p, name).Ports) > 0; published != (name == "balancer") {
				t.Errorf("%s: published %v", name, published)
			}
		}
	})
	t.Run("ConfinesWhatRunsForLong", func(t *testing.T) {
		t.Parallel()
		for _, name := range append([]string{"balancer", "upstream"}, nodeNames...) {
			s := service(t, p, name)
			if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.SecurityOpt, []string{"no-new-privileges:true"}) || s.Privileged {
				t.Errorf("%s: read-only %v, drops %q, %q", name, s.ReadOnly, s.CapDrop, s.SecurityOpt)
			}
		}
	})
	t.Run("MountsFilesThatAreThere", func(t *testing.T) {
		t.Parallel()
		for _, name := range p.ServiceNames() {
			for _, v := range service(t, p, name).Volumes {
				if v.Type != types.VolumeTypeBind {
					continue
				}
				if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
					t.Errorf("%s: %s: %v, read-only %v", name, v.Source, err, v.ReadOnly)
				}
			}
		}
	})
	t.Run("SendsTheBalancerToEveryNode", func(t *testing.T) {
		t.Parallel()
		s := service(t, p, "balancer")
		for i, name := range nodeNames {
			want := name + value(service(t, p, name), "PROBATE_LISTEN")
			if got := value(s, "NODE_"+string(rune('1'+i))); got != want {
				t.Errorf("the balancer knows %s as %q, want %q", name, got, want)
			}
		}
		text, err := os.ReadFile(filepath.Join(root, "deploy/haproxy.cfg"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "option httpchk GET /probe\n") {
			t.Error("the balancer does not ask GET /probe")
		}
	})
	t.Run("GivesANodeTimeToLeave", func(t *testing.T) {
		t.Parallel()
		delay, timeout := drainTimes(t)
		for _, name := range nodeNames {
			if grace := service(t, p, name).StopGracePeriod; grace == nil || !longer(*grace, delay+timeout) {
				t.Errorf("%s is killed after %v, and may need %v", name, grace, delay+timeout)
			}
		}
	})
}
