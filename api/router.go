package api

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"
)

// newRouter is all routes. What no route records goes to the upstream of its
// path, and else to the one for everything else, untouched and streaming.
func (a *API) newRouter() chi.Router {
	router := chi.NewRouter()
	everythingElse := a.everythingElse()
	router.NotFound(everythingElse.ServeHTTP)
	router.MethodNotAllowed(everythingElse.ServeHTTP) // every path has all methods: it is for none of them

	passed := map[string]bool{}
	for _, r := range a.config.Routes {
		e := a.endpoint(r.Operation)
		if !passed[r.Path] { // first all methods of the path, which it passes on, then those recorded
			router.Handle(r.Path, e)
			passed[r.Path] = true
		}
		for _, method := range r.Methods {
			router.Method(method, r.Path, e)
		}
	}
	return router
}

func (a *API) everythingElse() http.Handler {
	if a.config.PassThrough != "" {
		return a.upstreams.pass(a.config.PassThrough)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, ProfileIETF, a.config.ProblemTypes, problem{code: codeNotFound})
	})
}

// validatePattern accepts what the router does.
func validatePattern(at fieldFaults, pattern string) {
	defer func() {
		if p := recover(); p != nil {
			at.add("%v", p)
		}
	}()
	if pattern == "" {
		return
	}
	if pattern[0] != '/' {
		panic(fmt.Sprintf("%q does not begin with /", pattern))
	}
	chi.NewRouter().Handle(pattern, http.NotFoundHandler())
}
