# Everything is installed into .venv of this clone; a fresh machine needs Python >= 3.11 and make.
SHELL := /bin/bash
# The first that runs and is new enough; a version manager may put names on the PATH that do not run.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
AS_ROOT := $(shell [ $$(id -u) = 0 ] || echo sudo)
TOOLS := infra-tools checkov
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: .always help setup run clients test bench bench-smoke browser-tools console-pictures chaos-mutants fidelity-testbench tck infra-tools infra-image check lint types imports format clean

help:  ## Show these targets
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{sub("%", "NAME", $$1); printf "  make %-18s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "a2a-gcs needs Python 3.11 or newer; name it with: make PYTHON=/path/to/python3"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(STAMP)  ## Create .venv and install everything into it

infra-tools: $(TOOLS:%=$(VENV)/%/.installed)  ## What checks infra/, each in an environment of its own below .venv

$(VENV)/infra-tools/.installed: tests/infra/requirements-tools.txt
$(VENV)/checkov/.installed: tests/infra/requirements-checkov.txt
$(VENV)/%/.installed: | $(STAMP)
	$(BIN)/python -m tests.support.environments $(VENV)/$* -r $<
	@touch $@

infra-image: $(STAMP)  ## Carry out the Dockerfile without a container runtime, and run what it makes (Linux, root)
	$(BIN)/python -m pytest tests/infra/image_checks.py

run: $(STAMP)  ## Emulator, bucket and demo agent on http://127.0.0.1:8080; data stays in .a2a-gcs/
	$(BIN)/a2a-gcs dev $(ARGS)

clients: $(STAMP)  ## Other people's A2A clients, for the tests that run them (Node 20 for one of them)
	$(BIN)/python -m tests.clients.environments

test: $(STAMP)  ## Every test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench: $(STAMP)  ## Every benchmark, side by side with what people would use instead (under 30 minutes); writes tests/benchmark/RESULTS.md
	$(BIN)/python -m tests.benchmark $(ARGS)

bench-smoke: $(STAMP)  ## Try every benchmark: smallest sizes, one round, nothing is kept (under 3 minutes)
	$(BIN)/python -m tests.benchmark --smoke $(ARGS)

bench-%: $(STAMP) .always  ## One suite of them, as in make bench-tasks; a name that there is not lists all
	$(BIN)/python -m tests.benchmark $* $(ARGS)

browser-tools: $(STAMP)  ## Chromium (by apt) and axe-core (by npm), for the tests of the console
	@missing=; \
	command -v chromium chromium-browser google-chrome >/dev/null || missing="chromium fonts-dejavu-core"; \
	command -v npm >/dev/null || missing="$$missing npm"; \
	command -v node >/dev/null || missing="$$missing nodejs"; \
	test -z "$$missing" || { $(AS_ROOT) apt-get update -qq && \
		$(AS_ROOT) apt-get install -y -qq --no-install-recommends $$missing; }
	npm install --silent --no-audit --no-fund --prefix $(VENV)/browser-tools axe-core@4

console-pictures: $(STAMP)  ## Make the pictures of the console in service/docs/console anew
	$(BIN)/python -m tests.browser.pictures service/docs/console

chaos-mutants: $(STAMP)  ## Break each rule of the protocol on purpose: the chaos checker has to see all of them
	$(BIN)/python -m tests.chaos.mutants $(ARGS)

fidelity-testbench: $(STAMP)  ## The emulator's rules against storage-testbench: make fidelity-testbench TESTBENCH_DIR=its checkout
	$(BIN)/python -m tests.fake_gcs.run_testbench $(TESTBENCH_DIR)

tck: $(STAMP)  ## The A2A conformance kit against this host: make tck TCK_DIR=its checkout [ARGS='--bare ...']
	$(BIN)/python -m tests.support.run_tck $(TCK_DIR) $(ARGS)

check: lint types imports test  ## Lint, types, import directions, tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

format: $(STAMP)  ## Rewrite the sources in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove .venv and caches; data in .a2a-gcs/ is kept
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
