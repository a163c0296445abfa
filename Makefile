# Platter: build, demo, tests, benchmarks and lints. `make help` lists the targets.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export PLATTER ?= $(TARGET_DIR)/release/platter

.PHONY: help build demo test test-full bench lint

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

build: ## build target/release/platter, stripped; its symbols go to platter.debug beside it
	$(CARGO) build --release --package platter
	packaging/split-symbols $(TARGET_DIR)/release/platter

demo: ## capture, change, recapture, install and cast a disk of real files, in a few minutes
	@tests/prerequisites demo
	$(MAKE) --no-print-directory build
	@demo/run

test: ## unit tests and the quick end-to-end suites (about half an hour from nothing, as root)
	@tests/prerequisites test
	$(CARGO) test --workspace --no-run
	tests/retried tests/bounded 1200 $(CARGO) test --workspace --no-fail-fast
	$(MAKE) --no-print-directory build
	tests/run quick

test-full: ## also all samples, the catalog, a boot, 500 kill -9 cycles, long simulations, a minute of each fuzz target
	@tests/prerequisites full
	$(CARGO) test --workspace --no-run
	tests/retried tests/bounded 1200 $(CARGO) test --workspace --no-fail-fast
	$(CARGO) test --workspace --release -- --ignored
	$(MAKE) --no-print-directory build
	tests/run full
	tests/fuzz 60

bench: ## compare with other tools and limits; CATALOG=DIR names a catalog (without it, the small one is built)
	@tests/prerequisites bench
	$(MAKE) --no-print-directory build
	bench/run $(CATALOG)

lint: ## run all checks of the source
	@tests/prerequisites lint
	$(CARGO) xtask tidy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	git ls-files -z | xargs -0 grep -lE '^#!.*\b(ba)?sh$$' | xargs shellcheck -x
