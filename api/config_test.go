package api_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/probate-dev/probate/api"
	"github.com/probate-dev/probate/takeover"
)

func sound() api.Route {
	return api.Route{
		Methods: []string{"post"}, Path: "/a/{id}", Operation: "a", Upstream: "http://a",
		Principal: api.Principal{None: true},
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("AcceptsASoundOne", func(t *testing.T) {
		t.Parallel()
		c := api.Config{Routes: []api.Route{sound()}}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
		r := c.WithDefaults().Routes[0]
		if r.Retention != 24*time.Hour || r.UnknownRetention != 30*24*time.Hour || r.MaxRequestBytes != 1<<20 || r.MaxResponseBytes != 1<<20 ||
			r.Wait != (api.Wait{Default: 10 * time.Second, Max: time.Minute}) || r.OnServerError != api.ServerErrorUnknown || r.Methods[0] != "POST" {
			t.Errorf("defaults = %+v", r)
		}
	})
	for name, c := range map[string]struct {
		change func(r *api.Route)
		want   []string // path of each fault
	}{
		"WantsAPrincipal":          {func(r *api.Route) { r.Principal = api.Principal{} }, []string{"principal"}},
		"WantsOnePrincipal":        {func(r *api.Route) { r.Principal.TrustedHeader = "X" }, []string{"principal"}},
		"WantsKeysForTokens":       {func(r *api.Route) { r.Principal = api.Principal{JWT: &api.JWT{}} }, []string{"principal.jwt.jwks"}},
		"WantsWhoAuthorizes":       {func(r *api.Route) { r.Principal = api.Principal{Authorize: true} }, []string{"principal"}},
		"RefusesAHeaderName":       {func(r *api.Route) { r.Principal = api.Principal{Headers: []string{"a b"}} }, []string{"principal"}},
		"WantsMethods":             {func(r *api.Route) { r.Methods = nil }, []string{"match.methods"}},
		"RefusesSafeMethods":       {func(r *api.Route) { r.Methods = []string{"GET", "head"} }, []string{"match.methods", "match.methods"}},
		"RefusesStrangeMethods":    {func(r *api.Route) { r.Methods = []string{"PO ST"} }, []string{"match.methods"}},
		"WantsAPath":               {func(r *api.Route) { r.Path = "" }, []string{"match.path"}},
		"RefusesARelativePath":     {func(r *api.Route) { r.Path = "a" }, []string{"match.path"}},
		"RefusesABrokenPattern":    {func(r *api.Route) { r.Path = "/{a" }, []string{"match.path"}},
		"WantsAnOperation":         {func(r *api.Route) { r.Operation = "" }, []string{"operation"}},
		"WantsAnUpstream":          {func(r *api.Route) { r.Upstream = "" }, []string{"upstream"}},
		"RefusesAnUpstream":        {func(r *api.Route) { r.Upstream = "ftp://u:p@h" }, []string{"upstream"}},
		"RefusesABrokenTemplate":   {func(r *api.Route) { r.Resource = "{id" }, []string{"resource"}},
		"RefusesAResourceOfNone":   {func(r *api.Route) { r.Resource = "{none}" }, []string{"resource"}},
		"RefusesARealmOfNone":      {func(r *api.Route) { r.Realm.Path = "none" }, []string{"realm.path"}},
		"RefusesTwoRealms":         {func(r *api.Route) { r.Realm = api.Realm{Host: true, Path: "id"} }, []string{"realm"}},
		"RefusesAProfile":          {func(r *api.Route) { r.Profile = "x" }, []string{"profile", "on_server_error"}},
		"RefusesPolicies":          {func(r *api.Route) { r.OnInProgress, r.OnServerError = "x", "y" }, []string{"on_in_progress", "on_server_error"}},
		"RefusesStoredIcebergs":    {func(r *api.Route) { r.Profile, r.OnServerError = api.ProfileIceberg, api.ServerErrorStore }, []string{"on_server_error"}},
		"RefusesNegativeTimes":     {func(r *api.Route) { r.Retention, r.Settle = -1, -1 }, []string{"retention", "settle"}},
		"RefusesAPatientUpstream":  {func(r *api.Route) { r.Timeout, r.WorkTimeout = time.Minute, time.Second }, []string{"timeout"}},
		"RefusesAnEndlessSettle":   {func(r *api.Route) { r.Settle, r.WorkTimeout = time.Minute, time.Minute }, []string{"settle"}},
		"RefusesUnboundedBodies":   {func(r *api.Route) { r.MaxRequestBytes, r.MaxResponseBytes = -1, 1<<40 }, []string{"max_request_bytes", "max_response_bytes"}},
		"RefusesAPointer":          {func(r *api.Route) { r.Fingerprint.IgnoreJSON = []string{"a", "/~2"} }, []string{"fingerprint.ignore_json", "fingerprint.ignore_json"}},
		"RefusesTwoReconcilers":    {func(r *api.Route) { r.Reconcile = api.Reconcile{URL: "http://a", Reexecute: true} }, []string{"reconcile"}},
		"RefusesAReconcilerTwice":  {func(r *api.Route) { r.Reconcile.URL, r.Reconciler = "http://a", takeover.Reexecute }, []string{"reconcile"}},
		"RefusesAHostOfTheClients": {func(r *api.Route) { r.Reconcile.Get = "http://{resource}/x" }, []string{"reconcile.get"}},
		"RefusesAnUnknownName":     {func(r *api.Route) { r.Reconcile.Get = "http://a/{x}" }, []string{"reconcile.get"}},
		"RefusesACreatedStatus":    {func(r *api.Route) { r.Reconcile = api.Reconcile{Get: "http://a", CreatedStatus: 404} }, []string{"reconcile.created_status"}},
		"RefusesWaitingLonger":     {func(r *api.Route) { r.Wait = api.Wait{Default: 2, Max: 1} }, []string{"wait"}},
		"ReportsAllAtOnce": {
			func(r *api.Route) { *r = api.Route{Methods: []string{"POST"}, Path: "/"} },
			[]string{"operation", "principal", "upstream"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sound()
			c.change(&r)
			got := faultPaths(api.Config{Routes: []api.Route{r}}.Validate())
			for i := range c.want {
				c.want[i] = "routes[0]." + c.want[i]
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("faults at %q, want %q", got, c.want)
			}
		})
	}
	t.Run("RefusesAnOperationTwice", func(t *testing.T) {
		t.Parallel()
		twice := sound()
		twice.Path = "/b"
		c := api.Config{Routes: []api.Route{sound(), twice}, PassThrough: "nowhere"}
		if got := faultPaths(c.Validate()); !slices.Equal(got, []string{"pass_through", "routes[1].operation"}) {
			t.Errorf("faults at %q", got)
		}
	})
	t.Run("RefusesAPathTwice", func(t *testing.T) {
		t.Parallel()
		same, other := sound(), sound()
		same.Operation, same.Path = "b", "/a/{another}"
		other.Operation, other.Methods = "c", []string{"PUT"}
		c := api.Config{Routes: []api.Route{sound(), same, other}}
		if got := faultPaths(c.Validate()); !slices.Equal(got, []string{"routes[1].match"}) {
			t.Errorf("faults at %q", got)
		}
	})
	t.Run("StatesThePriceOfEachPrincipal", func(t *testing.T) {
		t.Parallel()
		r := sound()
		r.Principal = api.Principal{}
		err := api.Config{Routes: []api.Route{r}}.Validate()
		for _, choice := range []string{"headers", "jwt", "trusted_header", "authorize", "none"} {
			if !strings.Contains(err.Error(), choice) {
				t.Errorf("%v does not speak of %s", err, choice)
			}
		}
	})
	t.Run("WarnsOfRoutesThatCannotFindOut", func(t *testing.T) {
		t.Parallel()
		told := sound()
		told.Operation, told.Reconcile.Reexecute = "b", true
		stored := sound()
		stored.Operation, stored.OnServerError = "c", api.ServerErrorStore
		lines := api.Config{Routes: []api.Route{sound(), told, stored}}.Warnings()
		if len(lines) != 1 || !strings.Contains(lines[0], `"a"`) || !strings.Contains(lines[0], "720h") {
			t.Errorf("warnings = %q", lines)
		}
	})
	t.Run("NeedsACoordinatorOnlyToRun", func(t *testing.T) {
		t.Parallel()
		if _, err := api.New(api.Config{Routes: []api.Route{sound()}}); err == nil || !strings.Contains(err.Error(), "coordinator") {
			t.Errorf("error = %v", err)
		}
	})
}

// faultPaths lists the fields that an error is about.
func faultPaths(err error) []string {
	var paths []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			paths = append(paths, faultPaths(e)...)
		}
		return paths
	}
	if f, ok := errors.AsType[*api.FieldError](err); ok {
		return []string{f.Path}
	}
	return nil
}
