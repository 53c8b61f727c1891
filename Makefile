# What one does here. `make` alone lists it.

GOLANGCI_LINT := 2.15.0
BENCHTIME := 1s

# Nothing of ours needs a C compiler; only the race detector does (.ci/run).
export CGO_ENABLED := 0

.PHONY: help build test lint bench demo ci

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / && $$1 != "help" { printf "make %-6s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Compile everything; the binary goes to bin/probate
	go build ./...
	go build -trimpath -o bin/probate ./cmd/node

test: ## Install what the tests need if it is missing, and run them all
	@.ci/setup
	go test -timeout 20m ./...

lint: ## Check style, formatting and who imports whom
	@lint=golangci-lint; \
	if [ "$$($$lint version --short 2>/dev/null)" != "$(GOLANGCI_LINT)" ]; then \
		lint=.tools/golangci-lint-$(GOLANGCI_LINT); \
		if [ ! -x "$$lint" ]; then \
			echo "building golangci-lint $(GOLANGCI_LINT), once"; \
			GOBIN="$(CURDIR)/.tools" go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v$(GOLANGCI_LINT) && \
			mv .tools/golangci-lint "$$lint" || exit 1; \
		fi; \
	fi; \
	$$lint config verify && $$lint run --allow-parallel-runners ./...

bench: ## Run the benchmarks
	@.ci/setup
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 30m -p 1 ./...

demo: ## Watch a payment survive the death of the node that makes it
	@go run ./cmd/node demo

ci: ## Pass every gate that a change has to pass
	.ci/run
