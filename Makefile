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
PROTO_FILES := $(shell find proto -name '*.proto' 2>/dev/null)

.PHONY: help setup proto lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  \1\t/' | expand -t 16

setup: $(PROTO) ## make .venv with the locked dependencies and the project in it

proto: $(PROJECT) ## regenerate the protobuf modules
	@$(BIN)/python hatch_build.py
	@touch $(PROTO)

$(DEPS): requirements/dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "topospread needs Python 3.11 or newer, $(PYTHON) is " + sys.version.split()[0] + ": name another with make PYTHON=python3.12 setup")'
	@test -x $(BIN)/python || { echo 'setup: making $(VENV)'; $(PYTHON) -m venv $(VENV); }
	@echo 'setup: installing the locked dependencies'
	@$(PIP) install --require-hashes --requirement requirements/dev.lock
	@touch $@

$(PROJECT): $(DEPS) pyproject.toml hatch_build.py
	@echo 'setup: installing topospread itself (editable)'
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(PROTO): $(PROJECT) $(PROTO_FILES)
	@$(BIN)/python hatch_build.py
	@touch $@

clean: ## remove what was built, and .venv
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find proto server client tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
	@find proto \( -name '*_pb2.py' -o -name '*_pb2.pyi' -o -name '*_pb2_grpc.py*' \) -delete 2>/dev/null || true
