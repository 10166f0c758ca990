# make demo | test | lint | bench | compose-test | clean. Each target makes the environment in .venv if it is not there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Flower would otherwise build a fresh environment for every run.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
export FLWR_TELEMETRY_ENABLED := 0

.PHONY: demo test lint bench compose-test env clean
.DEFAULT_GOAL := demo

env: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Python 3.11 is needed: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	grep -q FLWR_DISABLE_RUNTIME $(BIN)/activate || printf '\nexport FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1\n' >> $(BIN)/activate
	touch $@

demo: $(READY)
	$(BIN)/fedivon run demo --strategy fedavg fedivon

test: $(READY) lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(READY)
	$(BIN)/python -m tests.bench

compose-test: $(READY)
	tests/e2e/engine.sh $(BIN)/python -m pytest -rs tests/e2e/test_compose.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
