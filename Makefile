# `make test` and `make demo` work on a fresh machine with Python >= 3.11 and make: they set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
# What the demo needs, and what the tests need beyond that.
READY := .venv/.ready
TEST_READY := .venv/.ready-test
INSTALL = $(BIN)/pip install --disable-pip-version-check $(QUIET) --constraint constraints.txt --editable
# Tests run with the shapes in every signature checked; tests/bad_input looks at our own messages instead, so it runs without.
SHAPES := --jaxtyping-packages=jumok,support.checked
WORKERS ?= auto
# Somebody who watches sees what pip downloads, a log file does not.
QUIET := $(shell test -t 2 || echo --quiet)

.PHONY: test test-fast test-pages check demo format clean

test: check
	$(BIN)/pytest -n $(WORKERS) tests --ignore tests/bad_input $(SHAPES)
	$(BIN)/pytest -n $(WORKERS) tests/bad_input

test-fast: $(TEST_READY)
	$(BIN)/pytest -n $(WORKERS) -m "not slow" tests --ignore tests/bad_input $(SHAPES)
	$(BIN)/pytest -n $(WORKERS) -m "not slow" tests/bad_input

# What a browser shows; `make test` has these too, and skips them where there is no Chromium.
test-pages: $(TEST_READY)
	$(BIN)/pytest -n $(WORKERS) -m browser tests --ignore tests/bad_input $(SHAPES)

check: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/jumok demo

format: $(TEST_READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "jumok needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version 2>&1); name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "setting up .venv: downloading and installing packages, a few minutes the first time ..." >&2
	@$(PYTHON) -m venv .venv
	@$(INSTALL) ".[plot,sklearn]"
	@echo ".venv is ready; for the command jumok: source .venv/bin/activate" >&2
	@touch $@

$(TEST_READY): $(READY)
	@echo "adding the packages of the tests to .venv ..." >&2
	@$(INSTALL) ".[test]"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis demo
