# make demo and make test work on a fresh machine with Python 3.11 or newer
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-portable test-slow check format docs figures bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.ready  ## the environment in .venv; quick when it is done

.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup  ## leave-one-domain-out on the embedded digits: tables, and a report as a web page
	$(BIN)/unseen compare digits --seeds 0,1,2 --runs demo/runs
	$(BIN)/unseen report demo/runs -o demo/report

test: setup .venv/.browser  ## all tests but the slow ones
	$(BIN)/python -m pytest -m "not slow" -n 2 --dist loadfile

# Looked for once, and installed where that is possible; says so where it is not, and never fails
.venv/.browser: tests/browser.py | setup
	$(BIN)/python -m tests.browser
	@touch $@

test-portable: setup .venv/.browser  ## the same tests with the instructions of other processors, and on a busy machine
	$(BIN)/python -m tests.portable

test-slow: setup  ## minutes of training on real data (UNSEEN_DATA)
	$(BIN)/python -m pytest -m slow

check: setup  ## lint, format, types, layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

format: setup  ## put the code into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: setup  ## the documentation as a web site in site/, with the generated tables
	$(BIN)/python docs/generators/write_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

figures: setup  ## files, lines, classes and recipes of the package, beside their budgets
	$(BIN)/python -m tests.house

bench: setup  ## speed figures as ratios, on the screen and in benchmarks/results.json
	$(BIN)/python -m benchmarks.run

clean:  ## remove the environment and the demo
	rm -rf .venv demo site
