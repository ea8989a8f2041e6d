# gorxe: a RoCEv2 transport in pure Go. `make help` explains the targets.
#
# Go and make are all that build, test and demo need. Tests that need more (a
# privilege, a kernel feature, tshark) skip and say what is missing. race, and
# so check, needs gcc: the race detector of Go on Linux is the one use of cgo.

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS   += --no-print-directory

export CGO_ENABLED := 0

GO       ?= go
TOOL     := $(GO) tool -modfile=tools.mod
PKG      ?= ./...
FUZZTIME ?= 4s

# What must build where only Go runs: the engines and the link in memory.
PORTABLE := trace verbs bth wire mr atomic cc transport rc uc ud cm link link/mem layers script
PORTABLE := $(foreach p,$(PORTABLE),$(if $(wildcard $(p)/*.go),./$(p)))

CHECKS := fmt vet lint layering shuffle race fuzz microbench cross

.DEFAULT_GOAL := help

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  PKG=./rc/... narrows test, race, fuzz and microbench; FUZZTIME=1m fuzzes each target longer."

.PHONY: build
build: ## the programs, into bin/
	$(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: demo
demo: build ## two NICs in one process talk to each other over loopback; no privilege needed
	bin/rxe demo

.PHONY: test
test: ## the tests; what lacks a privilege or a tool is skipped and says so
	$(GO) test $(PKG)

.PHONY: shuffle
shuffle: ## the tests in random order, none from the cache
	$(GO) test -shuffle=on $(PKG)

.PHONY: race
race: ## the tests under the race detector; needs gcc
	@command -v gcc >/dev/null || { echo "make race needs gcc (Debian: apt-get install gcc libc6-dev)" >&2; exit 1; }
	CGO_ENABLED=1 $(GO) test -race -vet=off $(PKG)

# go test -fuzz takes one target of one package a run.
.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@targets=$$($(GO) test -vet=off -list '^Fuzz' $(PKG) | awk '/^Fuzz/ {f[n++] = $$1} /^ok/ {for (i = 0; i < n; i++) print $$2, f[i]; n = 0}'); \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	while read -r pkg name; do \
		[ -n "$$pkg" ] || continue; \
		echo "-- $$pkg $$name"; \
		$(GO) test -vet=off -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$$pkg" 2>&1 | tee "$$log" || \
			{ grep -q '^    context deadline exceeded$$' "$$log" && ! grep -qiE 'failing input|panic' "$$log" && \
			echo "-- nothing was found: Go before 1.27 may fail as the time ends (go.dev/issue/75804)"; }; \
	done <<<"$$targets"

.PHONY: microbench
microbench: ## every Go benchmark once, so that none rots; the figures mean nothing
	$(GO) test -vet=off -run '^$$' -bench . -benchtime 1x $(PKG)

.PHONY: bench
bench: ## gorxe beside iperf3, UCX and qperf between two namespaces: ratios, and whether each need is met; needs root
	$(GO) run ./bench $(BENCH)

.PHONY: sim
sim: ## simulated workloads of RC, UC and UD over SEEDS seeds of each network (SEEDS=40): what rules they exercised, and a verdict; SIM='-replay ...'
	mkdir -p out
	$(GO) test -c -o out/sim.test ./sim
	cd sim && ../out/sim.test -test.timeout 60m -runs $(or $(SEEDS),40) -least $(or $(LEAST),0) $(SIM)

.PHONY: soak
soak: ## what takes longer than CI may: 400 seeds of each simulated network, a minute for each fuzz target, every interop case, chaos, contention
	$(MAKE) sim SEEDS=400 LEAST=1000
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) interop
	$(MAKE) interop-daemon
	$(MAKE) chaos CHAOS='-for 10m'
	$(MAKE) contend

.PHONY: interop
interop: ## every case against the kernel's Soft-RoCE and perftest in two emulated guests; needs root; INTEROP='-run RE' for some
	$(GO) run ./interop -json out/interop.json $(INTEROP)

.PHONY: interop-smoke
interop-smoke: ## a tenth of those, and some of each kind through a daemon, drawn by the commit (INTEROP='-seed N'): what CI runs
	$(GO) run ./interop -smoke -json out/interop-smoke.json $(INTEROP)

.PHONY: interop-daemon
interop-daemon: ## every case of interop with our side attached to an rxed, as a user without privilege; needs root
	$(GO) run ./interop -daemon -json out/interop-daemon.json $(INTEROP)

.PHONY: chaos
chaos: ## two rxed, 16 programs of which one is killed every second, every octet compared, nothing left; needs root; CHAOS='-for 10m -seed N'
	$(GO) run ./internal/chaos $(CHAOS)

.PHONY: contend
contend: ## congestion control on the wire: queue pairs that contend for a bottleneck of 500 Mb/s (rxe relay) between namespaces: shares, use, losses; needs root; CONTEND='-flows 4 -v'
	$(GO) run ./internal/contend $(CONTEND)

.PHONY: fmt
fmt: ## whether gofumpt would change anything
	@bad=$$($(TOOL) gofumpt -l .); [ -z "$$bad" ] || { $(TOOL) gofumpt -d $$bad; echo "not formatted (make format):" $$bad >&2; exit 1; }

.PHONY: format
format: ## let gofumpt format everything
	$(TOOL) gofumpt -w .

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

.PHONY: lint
lint: ## staticcheck
	$(TOOL) staticcheck ./...

.PHONY: layering
layering: ## which package may import which, and what engines may not do
	$(GO) test -count=1 ./internal/layering

.PHONY: mutants
mutants: ## break the engines in 300 places drawn by seed and see what the fast tests notice; MUTANTS='-seed 2 -n 30 -pkg rc -j 2'
	$(GO) run ./internal/mutants $(MUTANTS)

.PHONY: planted
planted: ## plant mistakes that others made in the engine; the fuzzer and the simulation must find each within 5 minutes; PLANTED='-all -match B2'
	$(GO) run ./internal/planted $(PLANTED)

.PHONY: fuzz-pair
fuzz-pair: ## FuzzPair, both ends of a connection under arbitrary packets and schedules, for FUZZTIME (FUZZTIME=60m), one at a time
	$(GO) test -vet=off -run '^$$' -fuzz '^FuzzPair$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 20x -parallel 1 ./rc

.PHONY: rules
rules: ## write docs/rules.md: every rule of the protocol, its code and what proves it
	$(GO) test -count=1 ./internal/rules -run TestDocument -update

.PHONY: cross
cross: ## builds for linux/arm64, and the portable packages for darwin/arm64
	GOOS=linux GOARCH=arm64 $(GO) vet ./...
	GOOS=linux GOARCH=arm64 $(GO) build ./...
	GOOS=darwin GOARCH=arm64 $(GO) build $(PORTABLE)

.PHONY: check
check: ## what CI runs: fmt vet lint layering shuffle race fuzz microbench cross
	@for step in $(CHECKS); do \
		start=$$SECONDS; echo "== $$step"; \
		$(MAKE) $$step; \
		echo "== $$step: $$((SECONDS - start)) s"; \
	done; echo "== check: all good, $$SECONDS s"

.PHONY: clean
clean: ## remove what was built
	rm -rf bin out gorxe-demo.pcapng
