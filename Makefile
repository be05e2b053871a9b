# Every target does its own set-up: a fresh clone needs nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.PHONY: help java setup demo test test-fast test-full fuzz coverage lint format bench docs reference hooks clean

help:
	@echo "make demo    a whole pipeline on Spark: made-up news for 10,000 subscriptions, and a report; one to two minutes (needs Java 17)"
	@echo "make test    lint, types, import layers and all tests"
	@echo "make test-fast   the quick tests alone, without Spark and servers: about a minute"
	@echo "make test-full   the same with the longest tests at full size, and two million answers from fresh seeds"
	@echo "make fuzz    random queries and messages from fresh seeds against the oracles (FUZZ_SECONDS=300)"
	@echo "make bench   the filtering experiments (NITF=folder for the published workloads)"
	@echo "make coverage   all tests, with the share of lines and branches that they run; half an hour"
	@echo "make docs    the documentation as a site in site/; a warning is an error"
	@echo "make reference  the parts of the docs that are generated from the code, written anew"
	@echo "make hooks   lint, format, types and import layers before every commit"
	@echo "make lint | format | setup | clean"

setup: $(READY)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sapwood needs Python 3.11 or newer; '$(PYTHON)' is older or missing."; \
	  echo "Install one (Debian/Ubuntu: sudo apt-get install python3.11 python3.11-venv; macOS: brew install python)"; \
	  echo "and run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

$(VENV)/.docs-ready: pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

java:
	@version=$$($(JAVA) -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1); \
	[ "$${version:-0}" -ge 17 ] || { \
	  echo "Sapwood's pipeline runs on Spark, which needs Java 17 or newer; '$(JAVA)' is older or missing."; \
	  echo "Install one (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"; \
	  echo "and, if there are several, point JAVA_HOME at it."; exit 1; }

demo: java setup
	$(BIN)/sapwood demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: java lint
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 10

test-fast: setup
	$(BIN)/pytest -n 2 -m "not slow and not spark and not server"

test-full: export SAPWOOD_TESTS = full
test-full: test docs fuzz
	$(BIN)/python -m tests.fuzz match --answers 2000000

FUZZ_SECONDS ?= 300

fuzz: setup
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

coverage: setup
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --cov --cov-report term

docs: $(VENV)/.docs-ready
	$(BIN)/zensical build --clean --strict

reference: setup
	$(BIN)/python -m tests.support.docs.generated_docs

hooks: setup
	$(BIN)/pre-commit install

bench: setup
	$(BIN)/sapwood bench filter $(if $(NITF),--nitf $(NITF))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output bench-output \
	  site .cache .coverage .coverage.* htmlcov
