# Platter: build, demo, tests, benchmarks and lints. `make help` lists the targets.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
export PLATTER ?= $(TARGET_DIR)/release/platter

# Side by side: each of them has minutes in which only one processor is busy.
UNIT_TESTS_AND_BUILD = $(MAKE) -j2 --no-print-directory unit-tests build

.PHONY: help build unit-tests demo test test-full bench lint

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

build: ## build target/release/platter, stripped; its symbols go to platter.debug beside it
	$(CARGO) build --release --package platter
	packaging/split-symbols $(TARGET_DIR)/release/platter

unit-tests: ## the tests of the crates
	$(CARGO) test --workspace --no-run
	tests/retried tests/bounded 1200 $(CARGO) test --workspace --no-fail-fast

demo: ## capture, change, recapture, install and cast a disk of real files, in a few minutes
	@tests/prerequisites demo
	$(MAKE) --no-print-directory build
	@demo/run

test: ## unit tests and the quick end-to-end suites (about half an hour from nothing, as root)
	@tests/prerequisites test
	$(UNIT_TESTS_AND_BUILD)
	tests/run quick

test-full: ## also all samples, the catalog, a boot, 500 kill -9 cycles, long simulations, a minute of each fuzz target
	@tests/prerequisites full
	$(UNIT_TESTS_AND_BUILD)
	$(CARGO) test --workspace --release -- --ignored
	$(CARGO) test --release --package platter-cast --features short-symbols --test large_room -- --ignored
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
