# `make test`, `make lint`, `make demo`. Needs cargo, a C compiler and python3; everything else is fetched, pinned,
# into .cache/ (see .ci/tools.py) and used again by the next run.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL := python3 .ci/tools.py
# Programs from crates that no wheel carries.
MACHETE_VERSION := 0.9.2
MACHETE := .cache/cargo-machete/$(MACHETE_VERSION)
# The protos of the last release, as an image of buf's.
RELEASED := proto/released.binpb

.PHONY: help
help: ## What there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

# Sets the array `nextest`.
NEXTEST := if cargo nextest --version >/dev/null 2>&1; then nextest=(cargo nextest); else nextest=($$($(TOOL) cargo-nextest) nextest); fi

.PHONY: test
test: ## All tests, with the real Envoy, grpcurl, helm, kubectl and promtool, and Chromium if it is there
	@envoy=$$($(TOOL) envoy); \
	grpcurl=$$($(TOOL) grpcurl); \
	helm=$$($(TOOL) helm); \
	kubectl=$$($(TOOL) kubectl); \
	promtool=$$($(TOOL) promtool); \
	$(NEXTEST); \
	set -x; \
	KINFERENCE_TEST_ENVOY=$$envoy KINFERENCE_TEST_GRPCURL=$$grpcurl \
	KINFERENCE_TEST_HELM=$$helm KINFERENCE_TEST_KUBECTL=$$kubectl KINFERENCE_TEST_PROMTOOL=$$promtool \
	"$${nextest[@]}" run --locked --features sim --all-targets --no-fail-fast
	cargo test --quiet --locked --features sim --doc

# KINFERENCE_TEST_KUBECONFIG names a cluster to test against, KINFERENCE_TEST_APISERVER a folder with two programs:
# `start DIR` starts an API server with its state under DIR and prints an admin kubeconfig, `stop DIR` ends it.
KUBERNETES := binary(token_review) | binary(kubernetes) | binary(kubernetes_discovery) | binary(crds) | binary(charts) \
	| (binary(e2e) & (test(/^cluster/) | test(/^replicas/) | test(/^polic/) | test(/^providers/)))

.PHONY: test-kubernetes
test-kubernetes: ## Only the tests with a real Kubernetes API server
	@[[ -n "$${KINFERENCE_TEST_KUBECONFIG:-}$${KINFERENCE_TEST_APISERVER:-}" ]] || echo "SKIPPED: what needs a Kubernetes API server"; \
	$(NEXTEST); \
	set -x; \
	KINFERENCE_TEST_ENVOY=$$($(TOOL) envoy) KINFERENCE_TEST_HELM=$$($(TOOL) helm) KINFERENCE_TEST_KUBECTL=$$($(TOOL) kubectl) \
	"$${nextest[@]}" run --locked --features sim --all-targets --no-fail-fast -E '$(KUBERNETES)'

# What is derived from the chart: look at the difference before it is committed.
.PHONY: charts
charts: ## Renew the snapshots, the schema and the README of the charts
	@helm=$$($(TOOL) helm); \
	set -x; \
	KINFERENCE_TEST_HELM=$$helm KINFERENCE_RENEW=1 cargo test --quiet --locked --test charts renewable -- --test-threads=1

.PHONY: lint
lint: fmt clippy deny machete typos hadolint proto ## All that can be said without running it

.PHONY: fmt
fmt:
	cargo fmt --check

.PHONY: clippy
clippy:
	cargo clippy --locked --all-targets --features sim -- -D warnings

# Bans, licenses and sources. Not advisories: their database is a git repository beyond the package registries.
.PHONY: deny
deny:
	deny=$$($(TOOL) cargo-deny); $$deny --locked --all-features --config .deny.toml check bans licenses sources

.PHONY: machete
machete: $(MACHETE)
	$(MACHETE)/bin/cargo-machete

$(MACHETE):
	cargo install --quiet --locked --root $@ cargo-machete@$(MACHETE_VERSION)

.PHONY: typos
typos:
	typos=$$($(TOOL) typos); $$typos

.PHONY: hadolint
hadolint:
	hadolint=$$($(TOOL) hadolint); $$hadolint Dockerfile

# Callers compiled against a release must go on working with the next one: no change may break what its protos said.
.PHONY: proto
proto:
	buf=$$($(TOOL) buf); $$buf lint proto; $$buf breaking proto --against $(RELEASED)

# At a release, once its protos are final: commit the new image with it.
.PHONY: proto-released
proto-released: ## Take the protos as they are for what the next change is held against
	buf=$$($(TOOL) buf); $$buf lint proto; $$buf build proto --exclude-source-info --output $(RELEASED)

.PHONY: demo
demo: ## Three engines, Envoy, Kinference and a comparison with random routing (DEMO_EXIT=1, DEMO_JSON=FILE)
	cargo build --release --locked --features sim --bin kinference --bin vllm-sim --example load
	exec python3 examples/demo/run.py

.PHONY: demo-pictures
demo-pictures: ## Take the pictures of the README of a demo that is up (needs chromium and chromium-driver)
	cargo build --release --locked --features sim --example load
	exec python3 examples/demo/pictures.py

.PHONY: bench-peers
bench-peers: ## Install the other routers that the routing benchmark compares with
	@python3 .ci/peers.py

# BENCH: its options, as in BENCH="--workload control --load 1".
.PHONY: bench-routing-sim
bench-routing-sim: ## The routing benchmark in simulation: curves over load, as JSON, a table and pictures
	cargo run --release --locked --features sim --example routing-sim -- $(BENCH)
	python3 benches/plot.py

# BENCH: its options, as in BENCH="--repeats 1 --workload control".
.PHONY: bench-routing-real
bench-routing-real: ## The routing benchmark over sockets: Envoy alone, Kinference and what bench-peers installed
	cargo build --release --locked --features sim --bin kinference --bin vllm-sim --example bench-client
	exec python3 benches/routing.py $(BENCH)

# BENCH holds options of benches/overhead.py: `make bench-overhead BENCH=--quick`.
.PHONY: bench-overhead
bench-overhead: ## What a decision costs beside Envoy alone and an ext_proc that does nothing (BENCH='--quick')
	cargo build --release --locked --features sim --bin kinference --bin vllm-sim --example noop
	python3 benches/overhead.py $(BENCH)
