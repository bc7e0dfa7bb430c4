# `make demo` and `make test` set up what they need in .venv, then do their work.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := models forecasting policies replication btb

.PHONY: help setup demo test lint types layers unit clean

help:
	@echo "make demo   write a bursty trace, train on it, compare policies (about 3 minutes)"
	@echo "make test   lint, types, import layers and the whole test suite, as CI runs it"
	@echo "make setup  only create .venv and install btb into it"

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "btb needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) has no venv module: installing Debian's python3-venv with apt-get"; \
		apt-get update && apt-get install -y python3-venv && $(PYTHON) -m venv $(VENV); }
	@echo "installing btb and its development tools into $(VENV) (a minute or two)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@

test: lint types layers unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks

layers: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/pytest -n auto tests
	$(BIN)/pytest --doctest-modules $(PACKAGES)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
