# Every target does its own set-up: a fresh clone needs nothing but Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

COMMA := ,

JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)

.PHONY: help java setup kernel demo test test-fast test-full test-sanitize test-thread-sanitize fuzz coverage lint \
  format bench wheel docs reference hooks clean

help:
	@echo "make demo    a whole pipeline on Spark: made-up news for 10,000 subscriptions, and a report; one to two minutes (needs Java 17)"
	@echo "make test    lint, types, import layers and all tests"
	@echo "make test-fast   the quick tests alone, without Spark and servers: two to three minutes"
	@echo "make test-full   the same with the longest tests at full size, and two million answers from fresh seeds"
	@echo "make test-sanitize   the engine's tests with a kernel that checks its memory and for undefined behaviour (gcc, Linux)"
	@echo "make test-thread-sanitize   the engine's tests of threads with a kernel that checks for data races (gcc, Linux)"
	@echo "make fuzz    random queries and messages from fresh seeds against the oracles (FUZZ_SECONDS=300)"
	@echo "make bench   the filtering experiments (NITF=folder for the published workloads)"
	@echo "make coverage   all tests, with the share of lines and branches that they run; half an hour"
	@echo "make wheel   a wheel with the compiled kernel, installed and tried in a fresh environment"
	@echo "make docs    the documentation as a site in site/; a warning is an error"
	@echo "make reference  the parts of the docs that are generated from the code, written anew"
	@echo "make hooks   lint, format, types and import layers before every commit"
	@echo "make lint | format | setup | clean"

setup: kernel

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Sapwood needs Python 3.11 or newer; '$(PYTHON)' is older or missing."; \
	  echo "Install one (Debian/Ubuntu: sudo apt-get install python3.11 python3.11-venv; macOS: brew install python)"; \
	  echo "and run: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	SAPWOOD_KERNEL=0 $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

# Compiles the kernel if a C file is newer. Not by pip, which would hide a warning, and resolve everything again.
kernel: $(READY)
	@$(BIN)/python hatch_build.py --if-older

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

# Without the kernel: all of the engine's tests, or those that take long only if they compare answers.
PURE_PYTHON = $(if $(filter full,$(SAPWOOD_TESTS)),tests/engine,-m "not slow or oracle" tests/engine)

# One process more than there are cores: many tests wait for servers that they have started.
TEST_PROCESSES ?= 3

test: java lint
	$(BIN)/pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --durations 10
	SAPWOOD_KERNEL=0 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(PURE_PYTHON)

test-fast: setup
	$(BIN)/pytest -n 2 -m "not slow and not spark and not server"

test-full: export SAPWOOD_TESTS = full
test-full: test docs fuzz
	$(BIN)/python -m tests.fuzz match --answers 2000000

# $(call test-sanitized,sanitizers,library,tests): a copy of the package in build/ has a kernel with sanitizers, of
# which the library has to be there before Python. Python's own allocator would hide errors in small objects.
define test-sanitized
	rm -rf build/$(2) && mkdir -p build/$(2) && cp -R src/sapwood build/$(2)
	CC=gcc $(BIN)/python hatch_build.py --sanitize $(1) --into build/$(2)/sapwood/engine/kernel
	LD_PRELOAD=$$(gcc -print-file-name=$(2).so) PYTHONPATH=$(CURDIR)/build/$(2):$(CURDIR)/tests/support/sanitizer \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TSAN_OPTIONS=halt_on_error=1 \
	  PYTHONMALLOC=malloc SAPWOOD_KERNEL=1 SAPWOOD_TESTS=sanitized $(BIN)/pytest $(3)
endef

test-sanitize: setup
	$(call test-sanitized,address$(COMMA)undefined,libasan,-n 2 --dist loadfile --no-loadscope-reorder tests/engine)

test-thread-sanitize: setup
	$(call test-sanitized,thread,libtsan,tests/engine/test_threads.py tests/engine/test_live_changes.py tests/engine/kernel)

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

WHEEL := build/wheel

# The new environment has no compiler, and runs where the source tree is not found.
wheel: setup
	rm -rf $(WHEEL)
	SAPWOOD_KERNEL=1 $(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL) .
	$(PYTHON) -m venv $(WHEEL)/venv
	PATH=$(abspath $(WHEEL))/venv/bin CC=/nonexistent \
	  pip install --quiet --disable-pip-version-check $(WHEEL)/*.whl
	cd $(WHEEL) && PATH=$(abspath $(WHEEL))/venv/bin python -P $(abspath tests/support/wheel_smoke.py)
	@ls $(WHEEL)/*.whl

bench: setup
	$(BIN)/sapwood bench filter $(if $(NITF),--nitf $(NITF))

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output bench-output \
	  site .cache .coverage .coverage.* htmlcov build
	rm -f src/sapwood/engine/kernel/_kernel.*.so src/sapwood/engine/kernel/_kernel.*.pyd
