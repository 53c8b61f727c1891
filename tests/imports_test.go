package tests_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/probate-dev/probate"

// Modules of others, by the reason for which they are allowed somewhere.
const (
	sqlx    = "github.com/jmoiron/sqlx"
	pq      = "github.com/lib/pq"
	sqlite3 = "github.com/ncruces/go-sqlite3"
	migrate = "github.com/golang-migrate/migrate/v4"
	backoff = "github.com/cenkalti/backoff/v4"
	chi     = "github.com/go-chi/chi/v5"
	sysUnix = "golang.org/x/sys/unix"
	minio   = "github.com/minio/minio-go/v7"
	xcrypto = "golang.org/x/crypto"
)

var (
	// drivers touch a database: only records/, cmd/node and tests do.
	drivers = []string{sqlx, pq, sqlite3}
	// testTools may be used by every test, and by the suite, which is one.
	testTools = []string{
		"github.com/google/go-cmp", "go.uber.org/goleak",
		"pgregory.net/rapid", "github.com/anishathalye/porcupine",
	}
	anything = []string{"*"}
)

// rule says what the package in a folder may import, and what its tests may
// besides. A folder below one with a rule, and without its own, is under the
// same rule.
type rule struct {
	folder   string
	imports  []string // packages of this module, "*" for all
	outside  []string // modules of others; "*" for all but the drivers
	standard []string // if set, the only packages of the standard library
	harness  bool     // exists for tests: may import testing and the test tools
	tests    []string // packages of this module for its tests, besides its own
	testOut  []string // modules of others for its tests, besides the test tools
}

// stores are what a test takes to have something real beneath it.
var stores = []string{
	"records", "records/sqlite", "records/postgres",
	"records/postgres/postgrestest", "records/recordstest", "records/sealed",
}

// law is the layout of the system, from the bottom up. .golangci.yml repeats
// it for editors.
var law = []rule{
	{folder: "migrations", standard: []string{"embed", "io/fs"}, tests: stores, testOut: []string{migrate, sqlx, pq, sqlite3}},
	{folder: "records", tests: []string{"records/recordstest"}},
	{folder: "records/groupcommit"},
	{folder: "records/recordstest", imports: []string{"records"}, harness: true, tests: []string{"records/sqlite"}},
	{
		folder:  "records/postgres",
		imports: []string{"records", "records/groupcommit", "migrations"}, outside: []string{sqlx, pq, migrate},
		tests: []string{"records/recordstest", "records/postgres/postgrestest"},
	},
	{
		folder:  "records/postgres/postgrestest",
		imports: []string{"records", "records/postgres", "migrations"}, outside: []string{sqlx, pq}, harness: true,
	},
	{
		folder:  "records/sqlite",
		imports: []string{"records", "records/groupcommit", "migrations"}, outside: []string{sqlx, sqlite3, migrate, sysUnix},
		tests: []string{"records/recordstest"},
	},
	{folder: "records/sealed", imports: []string{"records"}, outside: []string{xcrypto}, tests: stores, testOut: []string{sqlx}},
	{folder: "probe", imports: []string{"records"}, outside: []string{chi, backoff}, tests: stores},
	{folder: "takeover", imports: []string{"probe", "records"}, outside: anything, tests: stores},
	{folder: "api", imports: []string{"takeover", "records"}, outside: anything, tests: append(stores, "probe")},
	{folder: "transfer/move", outside: []string{backoff, minio}, tests: []string{"transfer/move/s3test", "tests/fleet"}},
	{folder: "transfer/move/s3test", imports: []string{"tests/fleet"}, harness: true},
	{folder: "transfer", imports: []string{"takeover", "records", "transfer/move"}, outside: anything, tests: append(stores, "probe")},
	{folder: "cmd/node", imports: anything, outside: append(drivers, "*")},
	{
		folder: "tests/fleet", imports: []string{"records", "records/postgres/postgrestest"}, harness: true,
		tests: []string{"takeover", "probe", "records/postgres"}, // what its node is made of
	},
	{
		folder: "tests/speed", harness: true,
		tests:   append(stores, "api", "takeover", "probe", "tests/fleet"), // what a Go service puts together
		testOut: []string{chi, pq},                                         // what others would write without it
	},
	{folder: "deploy/upstream"},
	{folder: "examples/money", imports: []string{"api", "probe", "records", "records/postgres", "takeover"}, outside: []string{sqlx, pq}},
	{folder: "tests/compose", tests: []string{"tests/fleet", "records/postgres/postgrestest"}, testOut: []string{"github.com/compose-spec/compose-go/v2", "go.yaml.in/yaml/v3"}},
	{folder: "tests/flows", tests: []string{"tests/fleet", "records/postgres/postgrestest", "transfer/move/s3test"}, testOut: []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
	{folder: "tests/openapi", tests: []string{"tests/fleet"}, testOut: []string{"github.com/santhosh-tekuri/jsonschema/v6", "go.yaml.in/yaml/v3"}},
	{
		folder:  "tests",
		imports: []string{"records", "records/postgres", "records/postgres/postgrestest", "tests/fleet"},
		outside: append(drivers, "*"), harness: true,
	},
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, fault := range importFaults(p) {
			t.Errorf("%s %s", p.folder(), fault)
		}
	}
}

// importFaults lists the imports of p that the law forbids.
func importFaults(p goPackage) []string {
	r, ok := ruleOf(p.folder())
	if !ok {
		return []string{"has no place in the law: give it a rule"}
	}
	var faults []string
	for _, path := range p.Imports {
		if !r.allows(path) {
			faults = append(faults, fmt.Sprintf("imports %s", path))
		}
	}
	for _, path := range slices.Concat(p.TestImports, p.XTestImports) {
		if !r.allows(path) && !r.allowsTests(p, path) {
			faults = append(faults, fmt.Sprintf("tests import %s", path))
		}
	}
	return faults
}

// ruleOf finds the rule of a folder or of the nearest folder above it.
func ruleOf(folder string) (rule, bool) {
	best, found := rule{}, false
	for _, r := range law {
		if within(folder, r.folder) && len(r.folder) >= len(best.folder) {
			best, found = r, true
		}
	}
	return best, found
}

func (r rule) allows(path string) bool {
	switch local, isLocal := strings.CutPrefix(path, module+"/"); {
	case isLocal:
		return slices.Contains(r.imports, local) || slices.Contains(r.imports, "*")
	case within(path, "testing"):
		return r.harness
	case isStandard(path):
		return r.standard == nil || slices.Contains(r.standard, path)
	case anyWithin(path, r.outside):
		return true
	case anyWithin(path, testTools):
		return r.harness
	default:
		return slices.Contains(r.outside, "*") && !anyWithin(path, drivers)
	}
}

func (r rule) allowsTests(p goPackage, path string) bool {
	local, isLocal := strings.CutPrefix(path, module+"/")
	if isLocal {
		return path == p.ImportPath || slices.Contains(r.tests, local)
	}
	return isStandard(path) || anyWithin(path, testTools) || anyWithin(path, r.testOut)
}

func anyWithin(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(path, root) })
}

// within reports whether path is root or lies below it.
func within(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

// isStandard relies on modules having a dot in their first element.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// TestImportLaw shows the law to forbid what it is for.
func TestImportLaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, folder string
		imports      []string
		tests        []string
		want         []string
	}{
		{name: "AllowsTheStandardLibrary", folder: "records", imports: []string{"time", "net/url"}},
		{name: "RefusesAModuleInRecords", folder: "records", imports: []string{"github.com/google/uuid"}, want: []string{"imports github.com/google/uuid"}},
		{name: "RefusesAStoreInRecords", folder: "records", imports: []string{module + "/records/sqlite"}, want: []string{"imports " + module + "/records/sqlite"}},
		{name: "RefusesRecordsInGroupCommit", folder: "records/groupcommit", imports: []string{module + "/records"}, want: []string{"imports " + module + "/records"}},
		{name: "AllowsAStoreItsDriver", folder: "records/postgres", imports: []string{sqlx, pq, migrate + "/source/iofs", module + "/records/groupcommit", module + "/migrations"}},
		{name: "RefusesAStoreTheOtherOnesDriver", folder: "records/sqlite", imports: []string{sqlite3 + "/driver", pq}, want: []string{"imports " + pq}},
		{name: "RefusesAStoreTheOtherStore", folder: "records/sqlite", imports: []string{module + "/records/postgres"}, want: []string{"imports " + module + "/records/postgres"}},
		{name: "RefusesAStoreTheCoordinator", folder: "records/postgres", imports: []string{module + "/takeover"}, want: []string{"imports " + module + "/takeover"}},
		{name: "RefusesAStoreInTheSuite", folder: "records/recordstest", imports: []string{"testing", module + "/records", "pgregory.net/rapid", module + "/records/sqlite", sqlx}, want: []string{"imports " + module + "/records/sqlite", "imports " + sqlx}},
		{name: "AllowsTheHarnessItsStore", folder: "records/postgres/postgrestest", imports: []string{"testing", sqlx, module + "/records/postgres"}},
		{name: "AllowsTheSealItsCipher", folder: "records/sealed", imports: []string{module + "/records", xcrypto + "/chacha20poly1305"}},
		{name: "RefusesTheSealAStore", folder: "records/sealed", imports: []string{module + "/records/postgres", module + "/takeover"}, want: []string{"imports " + module + "/records/postgres", "imports " + module + "/takeover"}},
		{name: "AllowsProbeRecordsChiAndBackoff", folder: "probe", imports: []string{module + "/records", chi, backoff, "crypto/ed25519"}},
		{name: "RefusesProbeAnythingElse", folder: "probe", imports: []string{module + "/takeover", "github.com/google/uuid"}, want: []string{"imports " + module + "/takeover", "imports github.com/google/uuid"}},
		{name: "RefusesTakeoverAStoreOrADriver", folder: "takeover", imports: []string{module + "/probe", module + "/records", module + "/records/sqlite", sqlx, pq}, want: []string{"imports " + module + "/records/sqlite", "imports " + sqlx, "imports " + pq}},
		{name: "AllowsTakeoverTestsARealStore", folder: "takeover", tests: []string{"testing", module + "/takeover", module + "/records/sqlite", module + "/records/postgres/postgrestest", "go.uber.org/goleak"}},
		{name: "RefusesTakeoverTestsTheAPI", folder: "takeover", tests: []string{module + "/api", sqlx}, want: []string{"tests import " + module + "/api", "tests import " + sqlx}},
		{name: "RefusesAPIToProbe", folder: "api", imports: []string{module + "/takeover", chi, module + "/probe", pq}, want: []string{"imports " + module + "/probe", "imports " + pq}},
		{name: "HoldsASubfolderToItsParentsRule", folder: "api/profile", imports: []string{module + "/probe"}, want: []string{"imports " + module + "/probe"}},
		{name: "RefusesTransferTheAPI", folder: "transfer", imports: []string{module + "/api"}, want: []string{"imports " + module + "/api"}},
		{name: "RefusesMovingBytesTheRecords", folder: "transfer/move", imports: []string{minio + "/pkg/credentials", backoff, module + "/records", chi}, want: []string{"imports " + module + "/records", "imports " + chi}},
		{name: "AllowsTheBinaryEverything", folder: "cmd/node", imports: []string{module + "/api", module + "/records/postgres", pq, sqlx, "github.com/alecthomas/kong"}},
		{name: "RefusesTestsInTheBinary", folder: "cmd/node", imports: []string{"testing", "testing/fstest", "go.uber.org/goleak"}, want: []string{"imports testing", "imports testing/fstest", "imports go.uber.org/goleak"}},
		{name: "AllowsMigrationsOnlyToEmbed", folder: "migrations", imports: []string{"embed", "io/fs", "os"}, want: []string{"imports os"}},
		{name: "RefusesBlackBoxTestsTheInside", folder: "tests", tests: []string{module + "/records/postgres", pq, module + "/takeover"}, want: []string{"tests import " + module + "/takeover"}},
		{name: "AllowsTheFleetsNodeWhatItIsMadeOf", folder: "tests/fleet", imports: []string{"testing", module + "/records"}, tests: []string{module + "/takeover", module + "/probe", module + "/records/postgres"}},
		{name: "RefusesTheFleetTheInside", folder: "tests/fleet", imports: []string{module + "/takeover"}, tests: []string{module + "/api"}, want: []string{"imports " + module + "/takeover", "tests import " + module + "/api"}},
		{name: "RefusesAPackageWithoutARule", folder: "cache", want: []string{"has no place in the law: give it a rule"}},
		{name: "IsNotFooledByALikeName", folder: "probers", want: []string{"has no place in the law: give it a rule"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := goPackage{ImportPath: module + "/" + c.folder, Imports: c.imports, XTestImports: c.tests}
			if got := importFaults(p); !slices.Equal(got, c.want) {
				t.Errorf("faults = %q, want %q", got, c.want)
			}
		})
	}
}
