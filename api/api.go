package api

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/probate-dev/probate/records"
	"github.com/probate-dev/probate/takeover"
)

// API answers keyed requests: as an [http.Handler] it is the gateway in front
// of its routes' upstreams; [API.Middleware] puts it in front of a handler.
type API struct {
	config    Config
	upstreams *upstreams
	outside   *outside // for everything asked besides upstreams
	router    chi.Router

	mu     sync.RWMutex
	byName map[string]*endpoint // by operation
}

// New builds an API. It starts nothing; [API.Close] closes idle connections.
func New(config Config) (*API, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.Coordinator == nil {
		return nil, errors.New("coordinator: missing")
	}
	config = config.WithDefaults()
	a := &API{config: config, upstreams: newUpstreams(config), outside: newOutside(config.Logger), byName: map[string]*endpoint{}}
	for _, r := range config.Routes {
		e, err := a.newEndpoint(r)
		if err != nil {
			return nil, err
		}
		a.upstreams.serve(e)
		a.register(e)
	}
	a.router = a.newRouter()
	return a, nil
}

// Close closes idle connections. Requests under way go on.
func (a *API) Close() error {
	a.upstreams.transport.CloseIdleConnections()
	a.outside.transport.CloseIdleConnections()
	return nil
}

// Recover is what to do with an interrupted operation that no client asks for:
// ask the reconciler of its route, if it has one. It is a takeover.Config's.
func (a *API) Recover(r records.Record) (takeover.Terms, takeover.Work, bool) {
	e := a.endpoint(r.Operation)
	if e == nil {
		return takeover.Terms{}, nil, false
	}
	return e.terms, nil, true
}

// register lets a record find the route of its operation, unless another has
// that name.
func (a *API) register(e *endpoint) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName[e.route.Operation] != nil {
		return false
	}
	a.byName[e.route.Operation] = e
	return true
}

func (a *API) endpoint(operation string) *endpoint {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.byName[operation]
}

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && !chiKnows(r.Method) {
		// chi has no tree for such a method. It is not recorded, so the path's
		// handler for GET, which passes everything through, will do.
		routing := chi.NewRouteContext()
		routing.RouteMethod, routing.Routes = http.MethodGet, a.router
		r = r.WithContext(context.WithValue(r.Context(), chi.RouteCtxKey, routing))
	}
	a.router.ServeHTTP(w, r)
}

func chiKnows(method string) bool {
	switch method {
	case http.MethodConnect, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
		http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace:
		return true
	}
	return false
}
