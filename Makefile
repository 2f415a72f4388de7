# What people do with this repository. `make` alone says what there is.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

target := $(or $(CARGO_TARGET_DIR),target)
binary := $(target)/release/counterfoil

# The faster runner where it is installed. It leaves the examples in documentation to cargo.
ifneq ($(shell command -v cargo-nextest),)
runner := cargo nextest run --workspace
else
runner := cargo test --workspace
endif

.PHONY: help
help: ## say this
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

.PHONY: up
up: release ## build, then run everything on an embedded PostgreSQL (ARGS="--listen … --data …")
	@exec $(binary) up $(ARGS)

.PHONY: release
release:
	cargo build --release -p counterfoil

.PHONY: test
test: ## everything CI runs; sets up what the tests need
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	scripts/with-servers $(runner) $(TESTS)

.PHONY: soak
soak: ## the long tests: random kills under load, for as long as SOAK_SECONDS says (600)
	COUNTERFOIL_SOAK_SECONDS=$(or $(SOAK_SECONDS),600) \
	  scripts/with-servers cargo test --workspace --release -- --ignored soak

.PHONY: bench
bench: release ## one benchmark, naive and ours (NAME=transfers-hot SECONDS=10)
	@exec $(binary) bench $(or $(NAME),transfers-hot) --seconds $(or $(SECONDS),10) --format json
