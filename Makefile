# `make demo` and `make test` set up what they need in .venv, then do their work.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BTB := ../$(BIN)/btb
PACKAGES := models forecasting policies replication btb
LAB := $(BIN)/btb lab rdma --install
VERBS_TESTS := tests/test_verbs.py tests/test_transports.py tests/test_agent.py

.PHONY: help setup demo test test-torch lint types layers unit rdma clean

help:
	@echo "make demo   write a bursty trace, train on it, compare policies (about 3 minutes)"
	@echo "make test   lint, types, import layers and the whole test suite, as CI runs it"
	@echo "make test-torch  installs torch too, and runs the tests that need it"
	@echo "make rdma   the part of it that needs RDMA, in a virtual machine (Debian 12)"
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

demo: $(STAMP)
	@rm -rf demo && mkdir demo
	@echo "== four windows of bursts, among prompts that come once"
	cd demo && $(BTB) generate fanout --windows 4 --seed 1 --out trace
	@echo "== learn from the first three, scoring each forecast before learning from it"
	cd demo && $(BTB) train trace/window-000.jsonl trace/window-001.jsonl \
		trace/window-002.jsonl --name demo --out model.json
	@echo "== compare policies on the fourth, which the model has not seen"
	cd demo && $(BTB) compare trace/window-003.jsonl --model model.json --report report
	@echo
	@echo "Open demo/report/index.html in a browser. To see the forecasts live, run in two shells:"
	@echo "  cd demo && $(BTB) serve --model model.json --log-dir log"
	@echo "  cd demo && $(BTB) replay trace/window-003.jsonl --to http://127.0.0.1:8017 --speed 10"

test: lint types layers unit rdma

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

test-torch: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev,torch]'
	$(BIN)/pytest tests/test_neural.py tests/test_trained_models.py

# Verbs need RDMA, so their tests run in a virtual machine. This comes last, to be seen if there is none.
rdma: $(STAMP)
	@if $(LAB) --timeout 180 -- $(BIN)/python -c 'import pyverbs.device'; then \
		$(LAB) --timeout 480 -- $(BIN)/python -m pytest -q -k verbs $(VERBS_TESTS); \
	else \
		echo "!!! RDMA verbs were NOT TESTED: btb lab rdma can't run here, for the reason above."; \
		echo "!!! Set BTB_REQUIRE_RDMA=1 to make this a failure."; \
		test "$$BTB_REQUIRE_RDMA" != 1; \
	fi

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
