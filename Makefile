# Everything is installed into .venv of this clone; a fresh machine needs Python >= 3.11 and make.
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.13 || command -v python3.12 || command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup run test bench bench-smoke check lint types imports format clean

help:  ## Show these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("a2a-gcs needs Python 3.11 or newer, found " + sys.version.split()[0] + "; try: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

setup: $(STAMP)  ## Create .venv and install everything into it

run: $(STAMP)  ## Emulator, bucket and demo agent on http://127.0.0.1:8080; data stays in .a2a-gcs/
	$(BIN)/a2a-gcs dev $(ARGS)

test: $(STAMP)  ## Every test
	$(BIN)/python -m pytest $(PYTEST_ARGS)

bench-smoke: $(STAMP)  ## Requests, bytes and round trips of typical exchanges (under 3 minutes)
	$(BIN)/python -m tests.benchmark.smoke

bench: bench-smoke  ## All benchmarks, side by side
	$(BIN)/python -m tests.benchmark.bench_gateway

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
