# The commands of this project. `make run` and `make test` need only python3 (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 3
REPORT_SECONDS := 15

.PHONY: help setup setup-dev run test test-fast test-faults lint format lock bench freeze openapi client docs audit dist release-check

help: ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## install the runtime dependencies
setup-dev: $(VENV)/.installed-dev ## install the test dependencies too

run: setup ## start PostgreSQL, API and worker; print an API key and a curl command
	@exec $(BIN)/hansei up $(ARGS)

test: setup-dev ## run all tests on a real PostgreSQL
	@echo "$(or $(ARGS),All tests): pytest collects and starts PostgreSQL for up to a minute, then prints dots. All tests take about 15 minutes on 2 cores."
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(ARGS)

test-fast: setup-dev ## tests without a database, and one request to each route
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m fast $(ARGS)

test-faults: setup-dev ## kill and stop processes, fill the disk, move the clock: ROUNDS kills of each kind (50), REPEAT rounds of every test (1)
	HANSEI_FAULTS=$(or $(ROUNDS),50) HANSEI_FAULTS_REPEAT=$(or $(REPEAT),1) $(BIN)/python -m pytest tests/faults $(ARGS)

lint: setup-dev ## check formatting, code, layers, types, prose and dependencies
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/basedpyright
	$(BIN)/basedpyright --pythonplatform Windows sdk/hansei # calls that Windows does not have
	$(BIN)/basedpyright -p tests # names that do not exist
	$(BIN)/python -m tests.rules.prose
	$(BIN)/python -m tests.rules.audit # as `make audit`

audit: setup-dev ## known vulnerabilities of the locked packages, where an index can be reached
	$(BIN)/python -m tests.rules.audit

format: setup-dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

freeze: setup-dev ## record the hashes of the migrations, after a change of one that is not released
	$(BIN)/python -m tests.migrations.test_frozen

openapi: setup-dev ## write openapi.json from the code
	$(BIN)/python -m memory_api openapi openapi.json

client: setup-dev ## write the models and resources of the Python client from openapi.json
	$(BIN)/python -m sdk.generator

docs: setup-dev ## build the documentation as a site in build/site
	PYTHONPATH=sdk:apps:. $(BIN)/python -m mkdocs build

dist: setup-dev ## build the sdists and wheels, and the package for npm, in build/dist
	rm -rf build/dist && mkdir -p build/dist
	$(BIN)/python -m hatchling build -d build/dist
	cd sdk && ../$(BIN)/python -m hatchling build -d ../build/dist
	cd sdk/typescript && npm ci --silent && npm pack --silent --pack-destination ../../build/dist

release-check: setup-dev ## build and try what a release publishes, and list what is missing; TAG=v1.2.3 checks the tag too
	$(BIN)/python -m tests.deploy.release $(TAG)

bench: setup-dev ## run benchmarks and print tables (bench/README.md)
	$(BIN)/python -m bench $(ARGS)

lock: setup-dev ## compile the lock files from both pyproject.toml
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --universal --python-version 3.11 \
	  $(ARGS) --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package hansei \
	  pyproject.toml --extra build --extra all -o requirements.lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --universal --python-version 3.11 \
	  $(ARGS) --generate-hashes --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package hansei \
	  pyproject.toml --extra build --extra all --extra dev -c requirements.lock -o requirements-dev.lock

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Hansei needs Python 3.11 or newer, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@echo "Creating the Python environment $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

# $(call install,LOCK FILE): installs, and says how far it is, because `pip -q` prints nothing.
install = (seconds=0; while sleep $(REPORT_SECONDS) >/dev/null 2>&1; do \
	  seconds=$$((seconds + $(REPORT_SECONDS))); \
	  echo "  $$seconds s: $$(ls $(VENV)/lib/python*/site-packages 2>/dev/null | grep -c 'dist-info$$')" \
	    "of about $$(grep -c '^[a-z].*==' $(1)) packages installed"; done) & reporter=$$!; \
	trap "kill $$reporter" EXIT; trap "exit 130" INT TERM; \
	$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(1)

# hansei and hansei-server are installed as .pth files and entry points, without a download.
$(VENV)/.installed: $(VENV)/bin/python requirements.lock pyproject.toml sdk/pyproject.toml
	@echo "Installing the packages of the service (one to two minutes, 430 MB; pip downloads all before it installs the first) …"
	@$(call install,requirements.lock)
	@echo "Installing Hansei …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e ./sdk -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.lock
	@echo "Installing the packages of the tests …"
	@$(call install,requirements-dev.lock)
	@touch $@
