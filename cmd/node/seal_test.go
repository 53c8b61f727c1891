package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/records/sealed"
	"github.com/probate-dev/probate/records/sqlite"
)

// newKey makes a key as the command does.
func newKey(t *testing.T, id string) string {
	t.Helper()
	k, err := sealed.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// material is what nobody may see of a key.
func material(key string) string {
	_, secret, _ := strings.Cut(key, ":")
	return secret
}

// write writes a file of a test's own and returns its name.
func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestSeal(t *testing.T) {
	t.Parallel()

	t.Run("MakesAKeyThatANodeReads", func(t *testing.T) {
		t.Parallel()
		named, dated := strings.TrimSpace(ok(t, "seal", "key", "blue")), okJSON(t, "seal", "key")
		text := named + "," + fmt.Sprint(dated["key"])
		c, err := readConfig(settings{environ: map[string]string{sealVariable: text}})
		if err != nil || !slices.Equal(c.sealKeys.IDs(), []string{"blue", fmt.Sprint(dated["id"])}) {
			t.Errorf("keys %v of %v, %v", c.sealKeys.IDs(), dated["id"], err)
		}
		if r := invoke(t, nil, "seal", "key", "not an id"); r.code != exitUsage || r.out != "" {
			t.Errorf("%+v", r)
		}
	})

	t.Run("ReportsEveryFaultAtItsPlaceAndNoKey", func(t *testing.T) {
		t.Parallel()
		folder := t.TempDir()
		good, other := newKey(t, "good"), newKey(t, "other")
		bad := write(t, filepath.Join(folder, "bad"), good+"\n"+material(other)+"\ngood:"+material(other)+"\nshort:"+material(good)[:20]+"\n")
		empty := write(t, filepath.Join(folder, "empty"), "# later\n")
		for name, c := range map[string]struct {
			environ, flags map[string]string
			want           []string // how each line begins
		}{
			"OfAFile": {nil, map[string]string{"seal.keys_file": bad}, []string{
				"--seal.keys-file: seal.keys_file: " + bad + ": line 2: ", "--seal.keys-file: seal.keys_file: " + bad + ": line 3: ", "--seal.keys-file: seal.keys_file: " + bad + ": line 4: ",
			}},
			"OfTheEnvironment":   {map[string]string{sealVariable: good + "," + material(other)}, nil, []string{"PROBATE_SEAL_KEYS: line 1, entry 2: "}},
			"OfAFileWithoutKeys": {nil, map[string]string{"seal.keys_file": empty}, []string{"--seal.keys-file: seal.keys_file: " + empty + ": there is no key"}},
			"OfAnEmptyVariable":  {map[string]string{sealVariable: ""}, nil, []string{"PROBATE_SEAL_KEYS: there is no key"}},
			"OfAFileThatIsAway":  {nil, map[string]string{"seal.keys_file": filepath.Join(folder, "none")}, []string{"--seal.keys-file: seal.keys_file: open "}},
			"OfTwoPlaces":        {map[string]string{sealVariable: good}, map[string]string{"seal.keys_file": bad}, []string{"--seal.keys-file: seal.keys_file: PROBATE_SEAL_KEYS is set as well"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := faultsIn(t, "", c.environ, c.flags)
				if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
					t.Errorf("faults:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
				}
				for _, secret := range []string{material(good), material(other), material(good)[:20]} {
					if strings.Contains(strings.Join(got, "\n"), secret) {
						t.Errorf("a key is in %q", got)
					}
				}
			})
		}
	})

	t.Run("TellsWhichKeysAndNeverAKey", func(t *testing.T) {
		t.Parallel()
		one, two := newKey(t, "one"), newKey(t, "two")
		environ := []string{sealVariable + "=" + one + "," + two}
		store := sqliteStore(t)
		var told strings.Builder
		for _, args := range [][]string{
			{"serve", "--check"}, {"serve", "--check", "--output", "json"}, {"doctor"}, {"doctor", "--output", "json"}, {"migrate", "up"}, {"records", "list"},
		} {
			if args[0] == "serve" || args[0] == "doctor" {
				args = append(args, "--internal.listen", "127.0.0.1:0", "--log.level", "debug")
			}
			r := invoke(t, environ, append(args, "--store", store)...)
			if r.code != exitDone {
				t.Errorf("%q: %+v", args, r)
			}
			if args[0] == "doctor" && !strings.Contains(r.out, "key one; also opened with two") {
				t.Errorf("doctor does not tell: %s", r.out)
			}
			told.WriteString(r.out + r.err)
		}
		if r := invoke(t, nil, "doctor", "--store", store, "--internal.listen", "127.0.0.1:0"); !strings.Contains(r.out, "no key: they are stored in the open") {
			t.Errorf("doctor does not tell that nothing is sealed: %s", r.out)
		}
		file := write(t, filepath.Join(t.TempDir(), "keys"), one+"\n"+two+"\n")
		n := startEmbedded(t, "--config", configure(t, store, "http://127.0.0.1:1"), "--seal.keys-file", file, "--log.level", "debug")
		if got := n.log.all("sealing bodies and stored requests"); len(got) != 1 || got[0]["with"] != "key one; also opened with two" {
			t.Errorf("logged %v", got)
		}
		told.WriteString(n.log.text())
		for _, key := range []string{one, two} {
			if strings.Contains(told.String(), material(key)) {
				t.Errorf("a key was told:\n%s", told.String())
			}
		}
	})

	t.Run("TellsAnOperatorWhatCannotBeOpened", func(t *testing.T) {
		t.Parallel()
		s, client := newService(t), browser(t)
		store, file := sqliteStore(t), write(t, filepath.Join(t.TempDir(), "keys"), newKey(t, "one"))
		n := startEmbedded(t, "--config", configure(t, store, s.URL), "--seal.keys-file", file)
		ready(t, client, n.public)
		if got := order(t.Context(), client, n.public, "k", ""); got.status != http.StatusCreated {
			t.Fatalf("%+v", got)
		}
		id := onlyRecord(t, store).ID.String()
		if r := invoke(t, nil, "records", "show", id, "--store", store, "--seal.keys-file", file); r.code != exitDone {
			t.Errorf("with the key: %+v", r)
		}
		if r := invoke(t, nil, "records", "show", id, "--store", store); r.code != exitDone || !strings.Contains(r.out, "cannot be unsealed here") || strings.Contains(r.out, "is replayed") {
			t.Errorf("without: %+v", r)
		}
	})
}

// TestSeal_Release: a record whose stored request nobody can open is freed by
// an operator.
func TestSeal_Release(t *testing.T) {
	t.Parallel()
	store := sqliteStore(t)
	path, _ := sqlitePath(store)
	bare, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	keys, err := sealed.ParseKeys(newKey(t, "lost"))
	if err != nil {
		t.Fatal(err)
	}
	s, by := sealed.New(sealed.Config{Keys: keys}).Over(bare), registration()
	if _, err := s.Register(t.Context(), by); err != nil {
		t.Fatal(err)
	}
	got, err := s.Reserve(t.Context(), records.Reservation{ID: records.ID{7}, Operation: "order", Request: []byte("x"), By: by.ID, Attempt: records.NewToken()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.MarkUnknown(t.Context(), records.ID{7}, got.Record.Fence(), time.Hour); err != nil {
		t.Fatal(err)
	}
	if r := invoke(t, nil, "records", "release", records.ID{7}.String(), "--store", store, "--operator", "ops", "--reason", "the key is lost"); r.code != exitDone {
		t.Errorf("%+v", r)
	}
	if now := onlyRecord(t, store); now.State != records.Released {
		t.Errorf("it is %s", now.State)
	}
}

// onlyRecord is the one record of a store, as it is stored.
func onlyRecord(t *testing.T, store string) records.Record {
	t.Helper()
	path, _ := sqlitePath(store)
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, Cluster: "probate"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	page, err := s.List(t.Context(), records.Filter{Limit: 2})
	if err != nil || len(page.Records) != 1 {
		t.Fatalf("%d records, %v", len(page.Records), err)
	}
	h, err := s.Load(t.Context(), page.Records[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	return h.Record
}

// TestSeal_Rotation exchanges the key of two nodes that serve, as SECURITY.md
// says it is done.
func TestSeal_Rotation(t *testing.T) {
	t.Parallel()
	s, client := newService(t), browser(t)
	store, folder := sqliteStore(t), t.TempDir()
	old, young := newKey(t, "old"), newKey(t, "young")
	file := write(t, filepath.Join(folder, "keys"), "-")
	nodes := make([]*embedded, 2)
	for i := range nodes {
		nodes[i] = startEmbedded(t, "--config", configure(t, store, s.URL, "memory_bytes: -1"), "--seal.keys-file", file)
		ready(t, client, nodes[i].public)
	}
	asked := 0
	ask := func(n *embedded, key string) {
		t.Helper()
		if got := order(t.Context(), client, n.public, key, ""); got.status != http.StatusCreated || got.body != "order of "+key {
			t.Errorf("%s: %+v", key, got)
		}
	}
	// everywhere asks each node first, then the other one.
	everywhere := func() {
		t.Helper()
		for i := range nodes {
			asked++
			key := fmt.Sprint("k", asked)
			ask(nodes[i], key)
			ask(nodes[1-i], key)
		}
	}
	reload := func(n *embedded, with string) {
		t.Helper()
		n.signals <- syscall.SIGHUP
		await(t, "the keys are read again", func() bool {
			all := n.log.all("sealing bodies and stored requests")
			return all[len(all)-1]["with"] == with
		})
	}
	everywhere()
	byOld := "" // a key whose answer the old one seals
	for _, step := range []struct{ keys, with string }{
		{"-\n" + old, "no key: they are stored in the open; also opened with old"},
		{old, "key old"},
		{old + "\n" + young, "key old; also opened with young"},
		{young + "\n" + old, "key young; also opened with old"},
	} {
		write(t, file, step.keys)
		for _, n := range nodes {
			reload(n, step.with)
			if byOld == "" && step.keys == old {
				byOld = fmt.Sprint("k", asked+1)
			}
			everywhere()
		}
	}
	for i := range asked {
		ask(nodes[i%2], fmt.Sprint("k", i+1))
	}
	write(t, file, "oops")
	nodes[0].signals <- syscall.SIGHUP
	await(t, "the fault is told", func() bool { return len(nodes[0].log.all("configuration not reloaded")) > 0 })
	everywhere()

	write(t, file, young)
	for _, n := range nodes {
		reload(n, "key young")
		everywhere()
	}
	ask(nodes[1], "k1") // from before there were keys
	got := order(t.Context(), client, nodes[0].public, byOld, "")
	var problem struct{ Code string }
	if err := json.Unmarshal([]byte(got.body), &problem); err != nil || got.status != http.StatusInternalServerError || problem.Code != "result_unreadable" {
		t.Errorf("what the key that has gone sealed: %+v", got)
	}
	if _, text := get(t.Context(), client, nodes[0].internal+"/metrics"); !strings.Contains(text, `probate_unsealable_total{reason="unknown_key"} 1`) {
		t.Error("it was not counted")
	}
	for i := range asked {
		if n := s.times(fmt.Sprint("k", i+1)); n != 1 {
			t.Errorf("k%d was executed %d times", i+1, n)
		}
	}
}
