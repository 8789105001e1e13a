# `make test` and `make demo` work on a fresh machine with Python >= 3.11 and make: they set up .venv first.
PYTHON ?= python3
BIN := .venv/bin
# What the demo needs, and what the tests need beyond that.
READY := .venv/.ready
TEST_READY := .venv/.ready-test
INSTALL = $(BIN)/pip install --disable-pip-version-check $(QUIET) --constraint constraints.txt --editable
# `make test` runs with the shapes in every signature checked, but for tests/bad_input, which looks at our own messages instead.
SHAPES := --jaxtyping-packages=jumok,support.checked
WORKERS ?= auto
# Some tests take a minute and most of them milliseconds: a worker that has finished takes over what others still have.
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
# Every worker and every program that a test starts would compile all files of jumok anew where Python may not keep them.
export PYTHONDONTWRITEBYTECODE :=
# pip shows its progress in a terminal and is quiet in a log file.
QUIET := $(shell test -t 2 || echo --quiet)

.PHONY: test test-fast test-long test-all check demo results format clean

# Everything but what is slow by nature.
test: check
	$(PYTEST) -m "not long" tests $(SHAPES)

# A minute, for use while working: the first example of every test that is not slow.
test-fast: $(TEST_READY)
	$(PYTEST) --fast tests

# What is slow by nature: pages in Chromium (skipped where there is none), pages of docs/ that train models, kernels in
# Triton's interpreter, corpora larger than memory, repeated kills. As users run them: shapes are checked in `make test`.
test-long: $(TEST_READY)
	$(PYTEST) -m long tests

test-all: test test-long

check: $(TEST_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/jumok demo

# The commands that measure the tables of docs/ anew, with what they need and how long they take.
results:
	@$(PYTHON) -m benchmarks.commands

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
