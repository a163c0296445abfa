# Platter: what a person runs. `make help` tells.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export PLATTER ?= $(TARGET_DIR)/release/platter

.PHONY: help build demo test test-full bench lint

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

build: ## the binary, in target/release, stripped; its symbols are in platter.debug beside it
	$(CARGO) build --release --package platter
	packaging/split-symbols $(TARGET_DIR)/release/platter

demo: ## capture, change, capture again, install, cast to a room: on real files, in a few minutes
	@tests/prerequisites demo
	$(MAKE) --no-print-directory build
	@demo/run

test: ## unit tests, then the quick end-to-end suites (about half an hour from nothing, as root)
	@tests/prerequisites test
	$(CARGO) test --workspace
	$(MAKE) --no-print-directory build
	tests/run quick

test-full: ## every sample, the catalog, a boot, 500 kill -9 cycles, the long simulations, a minute of each fuzz target
	@tests/prerequisites full
	$(CARGO) test --workspace
	$(CARGO) test --workspace --release -- --ignored
	$(MAKE) --no-print-directory build
	tests/run full
	tests/fuzz 60

bench: ## ratios against peers and limits; CATALOG=DIR names a catalog (the small one is built when missing)
	@tests/prerequisites bench
	$(MAKE) --no-print-directory build
	bench/run $(CATALOG)

lint: ## what the project's checks say of the source
	@tests/prerequisites lint
	$(CARGO) xtask tidy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	git ls-files -z | xargs -0 grep -lE '^#!.*\b(ba)?sh$$' | xargs shellcheck -x
