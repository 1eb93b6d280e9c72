# make demo and make test work on a fresh machine with Python 3.11 or newer
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-portable test-versions test-slow check format docs figures bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/.ready  ## the environment in .venv; quick when it is done

.venv/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "unseen needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1 | tail -n 1)."; \
	  echo "Install one (macOS: brew install python@3.12) and name it: make $(MAKECMDGOALS) PYTHON=python3.12"; \
	  exit 1; }
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

# The oldest versions that are allowed, or highest for the newest, with the wheel as users get it
VERSIONS ?= lowest-direct
EXTRAS := train weights hdf5 formats hub figures serve pandas
test-versions:  ## tests of the public API with the oldest allowed packages (VERSIONS=highest: the newest)
	rm -rf .venv-versions
	$(PYTHON) -m venv .venv-versions
	.venv-versions/bin/pip install --quiet uv
	.venv-versions/bin/uv pip compile --quiet pyproject.toml $(EXTRAS:%=--extra %) \
	  --python .venv-versions/bin/python --resolution $(VERSIONS) -o .venv-versions/versions.txt
	.venv-versions/bin/uv build --quiet --wheel -o .venv-versions/dist
	.venv-versions/bin/uv pip install --quiet --python .venv-versions/bin/python \
	  -r .venv-versions/versions.txt pytest pytest-timeout
	.venv-versions/bin/uv pip install --quiet --python .venv-versions/bin/python --no-deps .venv-versions/dist/*.whl
	.venv-versions/bin/python -m pytest -W default -m "not slow" \
	  tests/cli tests/test_python.py tests/end_to_end/test_compare.py
	.venv-versions/bin/python -m pytest -W default tests/contract/test_methods_contract.py -k "dmg or aggregate"

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
	rm -rf .venv .venv-versions demo site
