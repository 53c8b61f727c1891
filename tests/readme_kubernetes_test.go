//go:build unix

package tests_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// deployment is what of a Kubernetes Deployment may stand in the README; a key
// that is not here is an error.
type deployment struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name string }
	Spec       struct {
		Replicas int
		Selector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []container
				Volumes    []struct {
					Name      string
					ConfigMap struct{ Name string } `yaml:"configMap"`
				}
			}
		}
	}
}

type container struct {
	Name, Image string
	Args        []string
	Env         []struct {
		Name, Value string
		From        struct {
			Field struct {
				Path string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
			Secret struct{ Name, Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Port int `yaml:"containerPort"`
	}
	Readiness podCheck `yaml:"readinessProbe"`
	Liveness  podCheck `yaml:"livenessProbe"`
	Mounts    []struct {
		Name     string
		Path     string `yaml:"mountPath"`
		ReadOnly bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type podCheck struct {
	Get struct {
		Path string
		Port int
	} `yaml:"httpGet"`
	Period   int `yaml:"periodSeconds"`
	Failures int `yaml:"failureThreshold"`
}

// stand for what Kubernetes knows of a pod.
var (
	podFields  = map[string]string{"metadata.name": "probate-7d4b9", "status.podIP": "10.1.2.3"}
	podSecrets = map[string]string{"token": "a-secret-of-the-fleet", "database": "postgres://probate@db/probate"}
	reference  = regexp.MustCompile(`\$\((\w+)\)`)
)

// environment is what a container's process finds, but for its configuration
// file.
func (c container) environment(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, e := range c.Env {
		value := e.Value
		if path := e.From.Field.Path; path != "" {
			value = podFields[path]
		} else if key := e.From.Secret.Key; key != "" {
			value = podSecrets[key]
		}
		env[e.Name] = reference.ReplaceAllStringFunc(value, func(m string) string {
			known, ok := env[reference.FindStringSubmatch(m)[1]]
			if !ok {
				t.Errorf("%s: %s is not defined before", e.Name, m)
			}
			return known
		})
		if env[e.Name] == "" {
			t.Errorf("%s is empty", e.Name)
		}
	}
	return env
}

// checkKubernetes: the binary takes the environment that the Deployment makes;
// its probes lead where a node listens, and its times fit together.
func (r readme) checkKubernetes(t *testing.T, binary string) {
	var d deployment
	decoder := yaml.NewDecoder(strings.NewReader(r.in(t, "Behind a balancer", "yaml", 1)[0]))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	if d.APIVersion != "apps/v1" || d.Kind != "Deployment" || len(pod.Containers) != 1 || !maps.Equal(d.Spec.Selector.MatchLabels, d.Spec.Template.Metadata.Labels) {
		t.Fatalf("%+v", d)
	}
	c := pod.Containers[0]
	env := c.environment(t)
	if got, want := env["PROBATE_INTERNAL_ADVERTISE"], "http://10.1.2.3"+env["PROBATE_INTERNAL_LISTEN"]; got != want {
		t.Errorf("a pod advertises %s, want %s", got, want)
	}
	if env["PROBATE_SLOT"] != "probate-7d4b9" {
		t.Errorf("a pod has slot %s", env["PROBATE_SLOT"])
	}
	mounted := c.Mounts[0]
	if filepath.Dir(env["PROBATE_CONFIG"]) != mounted.Path || pod.Volumes[0].Name != mounted.Name {
		t.Errorf("%s is not below %+v", env["PROBATE_CONFIG"], mounted)
	}
	takesEnvironment(t, binary, c.Args, env, r.in(t, "In front of your service", "yaml", 1)[0])

	listen, _ := example(t)["listen"].(string)
	if got := ":" + strconv.Itoa(c.Readiness.Get.Port); got != listen || c.Readiness.Get.Path != "/probe" {
		t.Errorf("readiness asks %s%s", got, c.Readiness.Get.Path)
	}
	if got := ":" + strconv.Itoa(c.Liveness.Get.Port); got != env["PROBATE_INTERNAL_LISTEN"] || c.Liveness.Get.Path != "/livez" {
		t.Errorf("liveness asks %s%s", got, c.Liveness.Get.Path)
	}
	delay, drain := duration(t, env["PROBATE_TAKEOVER_DRAIN_DELAY"]), duration(t, env["PROBATE_TAKEOVER_DRAIN_TIMEOUT"])
	if grace := time.Duration(pod.Grace) * time.Second; grace <= delay+drain {
		t.Errorf("a pod is killed after %s, and may need %s", grace, delay+drain)
	}
	if notices := time.Duration(c.Readiness.Period*c.Readiness.Failures) * time.Second; notices == 0 || delay <= notices {
		t.Errorf("requests are taken for %s, and it takes %s to notice", delay, notices)
	}
}

// takesEnvironment lets the binary check the environment, with the gateway's
// configuration as the file.
func takesEnvironment(t *testing.T, binary string, args []string, env map[string]string, config string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "probate.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env["PROBATE_CONFIG"] = file
	cmd := exec.CommandContext(t.Context(), binary, append(slices.Clone(args), "--check")...)
	cmd.Env = []string{}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("configuration is valid: 1 routes, 0 warnings, store postgres://db/probate")) {
		t.Errorf("serve --check: %v\n%s", err, out)
	}
}
