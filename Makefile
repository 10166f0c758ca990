# make demo | test | lint | types | docs | coverage | results | bench | compose-test | clean. Each target makes the environment
# in .venv if it is not there.
# The first of these that is one of the versions that the project takes, unless PYTHON is given.
PYTHONS := python3 python3.13 python3.12 python3.11
FITS := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for one in $(PYTHONS); do $$one -c '$(FITS)' 2>/dev/null && echo $$one && break; done)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MYPY := $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml
# Flower would otherwise build a fresh environment for every run.
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
export FLWR_TELEMETRY_ENABLED := 0

.PHONY: demo test lint types docs coverage results bench compose-test env clean
.DEFAULT_GOAL := demo

env: $(READY)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(FITS)' || { echo "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=/path/to/python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,docs]'
	grep -q FLWR_DISABLE_RUNTIME $(BIN)/activate || printf '\nexport FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1\n' >> $(BIN)/activate
	touch $@

demo: $(READY)
	$(BIN)/fedivon run few-rounds --strategy fedavg fedivon --seed 1 2 3 4 5 --engine inline

# The site is built first, so that a broken link or an unknown name in a docstring fails as a test does.
test: $(READY) lint docs
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

# mypy follows files and not __path__, so it is given the package as a wheel has it.
types: $(READY)
	$(BIN)/python tools/package_tree.py build/package
	cd build/package && $(MYPY) --package fedivon_app
	cd build/package && $(MYPY) $(CURDIR)/tools

docs: $(READY)
	$(BIN)/python tools/package_tree.py build/package
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "the site is in build/site"

# Without the end-to-end tests, whose processes are Flower's: what runs in them is not measured.
coverage: $(READY)
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --ignore tests/e2e --cov --cov-report term --cov-report html

results: $(READY)
	$(BIN)/python tools/results_page.py

bench: $(READY)
	$(BIN)/python -m tests.bench
	$(BIN)/python -m tests.bench_secure

compose-test: $(READY)
	tests/e2e/engine.sh $(BIN)/python -m pytest -rs tests/e2e/test_compose.py

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
