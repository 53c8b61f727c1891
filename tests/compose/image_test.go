package compose_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"go.yaml.in/yaml/v3"
)

// dockerfile reads the Dockerfile, comments left out, a line an instruction.
func dockerfile(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// stage are the instructions of one stage.
func stage(lines []string, name string) []string {
	from := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "FROM ") && strings.HasSuffix(l, " AS "+name) })
	if from < 0 {
		return nil
	}
	rest := lines[from:]
	if end := slices.IndexFunc(rest[1:], func(l string) bool { return strings.HasPrefix(l, "FROM ") }); end >= 0 {
		rest = rest[:end+1]
	}
	return rest
}

var goBuild = regexp.MustCompile(`^RUN (CGO_ENABLED=0 go build .*)$`)

// buildAsInTheImage runs the build commands of the Dockerfile. The programs
// that the images hold end up in a folder, under their names there.
func buildAsInTheImage(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	ran := 0
	for _, line := range stage(dockerfile(t), "build") {
		if m := goBuild.FindStringSubmatch(line); m != nil {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(m[1], "/out/", folder+"/"))
			cmd.Dir = root
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", m[1], err, out)
			}
			ran++
		}
	}
	if ran != 2 {
		t.Fatalf("the Dockerfile builds %d programs, want 2", ran)
	}
	return folder
}

func TestImages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"probate", "upstream"} {
		t.Run(name+"/IsOneProgramRunByNobody", func(t *testing.T) {
			t.Parallel()
			lines := stage(dockerfile(t), name)
			for _, want := range []string{"FROM scratch AS " + name, "USER 65532:65532", `ENTRYPOINT ["/` + name + `"]`, "COPY --from=build /out/" + name + " /" + name} {
				if !slices.Contains(lines, want) {
					t.Errorf("image %s has not %q: %q", name, want, lines)
				}
			}
		})
	}
	t.Run("AreBuiltWithTheGoOfTheModule", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(filepath.Join(root, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		wants := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
		if wants == nil || !slices.Contains(dockerfile(t), "FROM golang:"+string(wants[1])+" AS build") {
			t.Errorf("go.mod wants %s; %q", wants, dockerfile(t)[0])
		}
	})
	t.Run("HaveTargetsForCompose", func(t *testing.T) {
		t.Parallel()
		p := load(t)
		for _, name := range p.ServiceNames() {
			if b := service(t, p, name).Build; b != nil && stage(dockerfile(t), b.Target) == nil {
				t.Errorf("%s is built to %q, which the Dockerfile has not", name, b.Target)
			}
		}
	})
}

// checkStatic fails the test if a program needs anything of its surroundings.
func checkStatic(t *testing.T, program string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s is not static", program)
		}
	}
}

// drainTimes are those of the nodes' configuration.
func drainTimes(t *testing.T) (delay, timeout time.Duration) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy/probate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Takeover struct {
			Delay   time.Duration `yaml:"drain_delay"`
			Timeout time.Duration `yaml:"drain_timeout"`
		}
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c.Takeover.Delay, c.Takeover.Timeout
}

func longer(grace types.Duration, than time.Duration) bool { return time.Duration(grace) > than }
