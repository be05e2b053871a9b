# Every target does its own set-up: a fresh clone needs nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test lint format bench clean

help:
	@echo "make demo    generate messages and subscriptions, match them, show a table and a chart"
	@echo "make test    lint, types, import layers and all tests"
	@echo "make bench   the filtering experiments (NITF=folder for the published workloads)"
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

demo: setup
	$(BIN)/sapwood demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test: lint
	$(BIN)/pytest

bench: setup
	$(BIN)/sapwood bench filter $(if $(NITF),--nitf $(NITF))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output bench-output
