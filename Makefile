# Build output lives outside the clone, so that a second clone builds quickly. Any of
# CARGO_TARGET_DIR, GANTRY_CACHE and XDG_CACHE_HOME moves it.
export CARGO_TARGET_DIR ?= $(or $(GANTRY_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/gantry)/target

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print what each target does
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build the release binary and print its path
	@scripts/check-tools
	cargo build --release --package gantry
	@ls -l "$(CARGO_TARGET_DIR)/release/gantry" | awk '{ printf "$(CARGO_TARGET_DIR)/release/gantry (%.1f MB)\n", $$5 / 1000000 }'

# With a binary of its own nothing is built.
.PHONY: image
image: $(if $(findstring --binary,$(ARGS)),,build) ## Write the container image as an OCI archive (ARGS='--output gantry.tar --tag v1')
	@scripts/check-tools
	cargo xtask image $(ARGS)

.PHONY: up
up: build ## Run a whole cluster on this machine (ARGS='--demo --port 0')
	@"$(CARGO_TARGET_DIR)/release/gantry" up $(ARGS)

.PHONY: test
test: ## Run every test that needs nothing but this machine (ARGS='-p gantry-queue')
	@scripts/check-tools
	cargo xtask test $(ARGS)

.PHONY: crates
crates: ## Build every crate alone, with what its own manifest names
	@scripts/check-tools
	cargo xtask crates

.PHONY: doc
doc: ## Build the documentation of all crates; a broken link is an error
	@scripts/check-tools
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --document-private-items

.PHONY: lint
lint: ## Check format, lints, the project rules, and dependencies
	@scripts/check-tools --lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings
	cargo xtask tidy
	@if cargo deny --version >/dev/null 2>&1; then \
		echo cargo deny check licenses bans sources; \
		cargo deny check licenses bans sources; \
	else \
		echo "dependencies not checked: install cargo-deny with: cargo install --locked cargo-deny@^0.20"; \
	fi

.PHONY: audit
audit: ## Check dependencies against advisories; fails with NOT CHECKED where no database is available
	@scripts/check-tools
	@scripts/audit

.PHONY: gen
gen: ## Write every generated file
	@scripts/check-tools
	cargo xtask gen

.PHONY: testbed
testbed: ## Build the real Kubernetes that e2e tests run against; once, needs Go
	@testbed/build

.PHONY: e2e
e2e: ## Run the tests that need a real Kubernetes; the first time builds it
	@scripts/check-tools
	@testbed/build
	@testbed/node
	@testbed/kernels
	@testbed/images
	@testbed/builder
	@testbed/ansible
	@testbed/hosts
	cargo test --workspace --features gantry/e2e,gantry-testkit/e2e,gantry-conformance/e2e,gantry-connection/e2e,gantry-inventory/e2e,gantry-kmod/e2e,gantry-oci/e2e,gantry-registry/e2e,xtask/e2e --test e2e --test clients

.PHONY: drill-queue
drill-queue: ## Run the failure drill of the queue and print its timeline (ARGS='--seed 7 --size small')
	@scripts/check-tools
	cargo build --release --package gantry --package gantry-testkit --bin gantry --bin drill-queue
	"$(CARGO_TARGET_DIR)/release/drill-queue" $(ARGS)

.PHONY: test-actuation
test-actuation: ## Run the scenarios of actuation on the embedded cluster; takes minutes (ARGS='as_70')
	@scripts/check-tools
	cargo test --package gantry --features gantry/scenarios --test it -- actuation_scenarios::$(ARGS)

.PHONY: drill-actuation
drill-actuation: ## Kill the controllers of models again and again, and check who was awake (ARGS='--seed 7 --size small')
	@scripts/check-tools
	cargo build --release --package gantry --package gantry-testkit --bin gantry --bin drill-actuation
	"$(CARGO_TARGET_DIR)/release/drill-actuation" $(ARGS)

# Each seed is a world, and each world is run four times; a failure prints its seed.
SEEDS ?= 10000
.PHONY: prove-actuation
prove-actuation: ## Check the invariants of actuation in random worlds (SEEDS=10000)
	@scripts/check-tools
	PROPTEST_CASES=$$(($(SEEDS) * 32)) cargo test --release --package gantry-actuation --test it -- --nocapture worlds

.PHONY: inventory-oracle
inventory-oracle: ## Compare generated inventories with ansible-core (SEED=7 CASES=1000); needs Python
	@scripts/check-tools
	@testbed/ansible
	GANTRY_ORACLE_SEED=$(SEED) GANTRY_ORACLE_CASES=$(CASES) \
		cargo test --package gantry-inventory --features e2e --test e2e

# How long each target runs, and which; FUZZ has its own build output, because everything in it is
# instrumented.
SECONDS ?= 60
TARGETS ?= $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))
.PHONY: fuzz
fuzz: ## Feed random input to everything that reads input (SECONDS=60 TARGETS='apply wire')
	@scripts/check-tools --fuzz
	@scripts/fuzz "$(SECONDS)" $(TARGETS)

.PHONY: bench
bench: ## Measure API servers side by side and print ratios (ARGS='--seconds 2 --only create')
	@scripts/check-tools
	@testbed/build
	cargo build --release --package gantry --package gantry-bench
	"$(CARGO_TARGET_DIR)/release/bench" --json "$(CARGO_TARGET_DIR)/bench.json" $(ARGS)
	@echo "all figures: $(CARGO_TARGET_DIR)/bench.json"

.PHONY: bench-devices
bench-devices: ## Measure allocators of devices side by side (ARGS='full/500x10 refuse/8'); needs Go
	@scripts/check-tools
	cd testbed/allocator && go build -o "$(CARGO_TARGET_DIR)/allocator" .
	cargo build --release --package gantry-bench --bin bench-devices
	"$(CARGO_TARGET_DIR)/release/bench-devices" --peer "$(CARGO_TARGET_DIR)/allocator" $(ARGS)

.PHONY: bench-modules
bench-modules: ## Measure signing beside sign-file and umoci, and Modules on many nodes (ARGS='modules/100 control/1000')
	@scripts/check-tools
	@testbed/kernels
	@testbed/images
	cargo build --release --package gantry --package gantry-bench --bin gantry --bin bench-modules
	"$(CARGO_TARGET_DIR)/release/bench-modules" --kernels "$$(testbed/kernels --print-dir)" \
		--json "$(CARGO_TARGET_DIR)/bench-modules.json" $(ARGS)
	@echo "all figures: $(CARGO_TARGET_DIR)/bench-modules.json"

.PHONY: bench-scheduling
bench-scheduling: ## Measure schedulers with devices on a real API server (ARGS='pods/100x10'); needs Go
	@scripts/check-tools
	@testbed/build
	cargo build --release --package gantry --package gantry-bench
	"$(CARGO_TARGET_DIR)/release/bench-scheduling" --json "$(CARGO_TARGET_DIR)/bench-scheduling.json" $(ARGS)

# Peers are built from pinned Go modules, beside our own programs.
PEERS := $(CARGO_TARGET_DIR)/peers
KUEUE := sigs.k8s.io/kueue
MCAD := github.com/project-codeflare/multi-cluster-app-dispatcher
module = $$(cd testbed/$(1) && go list -m -f '{{.Dir}}' $(2))
.PHONY: bench-queue
bench-queue: ## Measure queues of jobs on a real API server (ARGS='--scale 0.1 baseline'); needs Go
	@scripts/check-tools
	@testbed/build
	mkdir -p "$(PEERS)"
	cd testbed/kueue && go build -o "$(PEERS)/" ./cmd/core \
		$(KUEUE)/test/performance/scheduler/minimalkueue $(KUEUE)/test/performance/scheduler/runner
	cd testbed/mcad && go build -o "$(PEERS)/" $(MCAD)/cmd/kar-controllers
	cargo build --release --package gantry --package gantry-bench
	"$(CARGO_TARGET_DIR)/release/bench-queue" --json "$(CARGO_TARGET_DIR)/bench-queue.json" \
		--kueue "$(PEERS)" --kueue-definitions "$(call module,kueue,$(KUEUE))/config/components/crd/bases" \
		--mcad "$(PEERS)/kar-controllers" --mcad-definitions "$(call module,mcad,$(MCAD))/config/crd/bases" $(ARGS)
	@echo "all figures: $(CARGO_TARGET_DIR)/bench-queue.json"
