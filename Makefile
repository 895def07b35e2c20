PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH_VENV := .venv-bench

.PHONY: demo test test-all check bench publish clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Reinstalled whenever the dependencies change; the package itself is editable.
$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,experiments]'
	touch $@

demo: $(VENV)/.ready  ## Run every experiment in small and make the report
	$(BIN)/steadygrad run all --preset smoke --out runs
	$(BIN)/steadygrad report --runs runs --out report.html

test: $(VENV)/.ready  ## Run the tests that take seconds
	$(BIN)/python -m pytest -n auto --maxprocesses 4

test-all: $(VENV)/.ready  ## Run all tests, the slow ones too
	$(BIN)/python -m pytest -n auto --maxprocesses 4 -m ''

check: $(VENV)/.ready  ## Lint, types, import directions, report and docs against the records
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -q tests/test_imports.py
	$(BIN)/python tools/publish.py --check

# An environment of its own: the peers would bring their dependencies into the tests.
$(BENCH_VENV)/.ready: pyproject.toml constraints.txt benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[experiments]' -r benchmarks/requirements.txt
	touch $@

bench: $(BENCH_VENV)/.ready  ## Measure seconds, memory and honesty beside the peers (15 minutes; ARGS="--quick", ARGS="--only NAME")
	$(BENCH_VENV)/bin/python -m benchmarks $(ARGS)
	$(BENCH_VENV)/bin/python tools/speed_numbers.py benchmarks/results.json docs/speed.md

publish: $(VENV)/.ready  ## Make results/report.html and the numbers in the docs from the committed records
	$(BIN)/python tools/publish.py

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) $(BENCH_VENV) .pytest_cache .ruff_cache .hypothesis build dist
