package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/probate-dev/probate/records/sealed"
)

// Seal is what response bodies and stored requests are sealed with. The keys
// themselves stand in the file or in the environment, never here.
type Seal struct {
	KeysFile string `yaml:"keys_file" help:"File of keys that seal stored bodies and requests: id:base64, one a line. The first seals, all open."`
}

// sealVariable holds keys where there is no file of them.
const sealVariable = "PROBATE_SEAL_KEYS"

// readSeal reads the keys. What is wrong with them is told without them. That
// nothing is sealed must be meant, so a place for keys without any is a fault.
func (c *Config) readSeal(s *settings) {
	text, inEnvironment := s.environ[sealVariable]
	path, place := sealVariable, ""
	if c.Seal.KeysFile != "" {
		if inEnvironment {
			s.doubt("seal.keys_file", "%s is set as well: want one of them", sealVariable)
			return
		}
		bytes, err := os.ReadFile(c.Seal.KeysFile)
		if err != nil {
			s.doubt("seal.keys_file", "%v", err)
			return
		}
		text, path, place = string(bytes), "seal.keys_file", c.Seal.KeysFile+": "
	} else if !inEnvironment {
		return
	}
	keys, err := sealed.ParseKeys(text)
	for _, fault := range split(err) {
		s.fault(path, "%s%v", place, fault)
	}
	if err == nil && !keys.Meant() {
		s.fault(path, "%sthere is no key in it; probate seal key makes one", place)
	}
	c.sealKeys = keys
}

// sealing says in words what happens to bodies and stored requests.
func (c Config) sealing() string {
	with, others := "no key: they are stored in the open", c.sealKeys.IDs()
	if c.sealKeys.Seals() {
		with, others = "key "+others[0], others[1:]
	}
	if len(others) == 0 {
		return with
	}
	return with + "; also opened with " + strings.Join(others, ", ")
}

// newSealer makes what seals for a store. m may be nil.
func newSealer(c Config, log *slog.Logger, m *metrics) *sealed.Sealer {
	config := sealed.Config{Keys: c.sealKeys, Logger: log}
	if m != nil {
		config.Unsealable = m.unsealed
	}
	return sealed.New(config)
}

// exchangeKeys takes over the keys of a configuration that was read again.
func (n *node) exchangeKeys(ctx context.Context, c Config) {
	before := Config{sealKeys: n.sealer.Keys()}.sealing()
	n.sealer.Exchange(c.sealKeys)
	if before != c.sealing() {
		n.log.InfoContext(ctx, "sealing bodies and stored requests", "with", c.sealing())
	}
}

type sealCmd struct {
	Key sealKeyCmd `cmd:"" help:"Make a key, and print it."`
}

type sealKeyCmd struct {
	ID string `arg:"" optional:"" help:"Its name, of up to 32 letters, digits, dots, dashes and underscores. Default: the date and four random digits."`
}

// Help is shown below the flags.
func (sealKeyCmd) Help() string {
	return `Examples:

  (umask 077; probate seal key >> /etc/probate.keys)      a file for seal.keys_file
  PROBATE_SEAL_KEYS=$(probate seal key) probate serve     keys from the environment, separated by commas

The first key seals, all open; behind a dash (-) in the place of the first, keys only open. To replace one while nodes serve: add the
new one behind the old one on all nodes, then put it first on all nodes, then, once the longest retention has passed, take the old
one away. The first key of a fleet goes behind a dash first. SIGHUP makes a node read the file again.`
}

// Run implements the subcommand.
func (c *sealKeyCmd) Run(e *env) error {
	if c.ID == "" {
		var random [2]byte
		rand.Read(random[:]) // never fails
		c.ID = time.Now().UTC().Format(time.DateOnly) + "-" + hex.EncodeToString(random[:])
	}
	key, err := sealed.NewKey(c.ID)
	if err != nil {
		return usageError{err}
	}
	return e.show(map[string]string{"id": c.ID, "key": key}, func(w *text) { w.printf("%s\n", key) })
}
