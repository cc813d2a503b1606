# The commands of this project. `make run` and `make test` need python3 (3.11 or newer) and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: help setup setup-dev run test lint format lock bench

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## install what running needs
setup-dev: $(VENV)/.installed-dev ## install what testing needs too

run: setup ## start everything: database, API, worker; prints a key and a curl line
	@exec $(BIN)/hansei up $(ARGS)

test: setup-dev ## all tests, on a real PostgreSQL
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

lint: setup-dev ## formatting, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright

format: setup-dev ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup-dev ## the benchmarks, as tables (bench/README.md)
	$(BIN)/python -m bench $(ARGS)

lock: setup-dev ## compile the lock files from pyproject.toml
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	  pyproject.toml -o requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links \
	  pyproject.toml --extra dev -c requirements.lock -o requirements-dev.lock

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Hansei needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# The project itself is linked in by a .pth file and an entry point (no build step, no download).
$(VENV)/.installed: $(VENV)/bin/python requirements.lock pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
