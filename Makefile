# The project's habits. Every target sets up what it needs first; `args` goes to the program behind it:
#   make test args="-k purge"    make run args="--port 9000"    make test workers=0

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
args ?=
# Tests run side by side: a file is one worker's, servers and folders are each worker's own. More than half of their
# time they wait (leases, kills, timeouts): three keep two cores at work.
workers ?= 3
# Byte code is kept, whatever this machine is told: compiling all anew makes the start of a process twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Made once, and again when what they were made from has changed.
SYNCED := .venv/.synced
JAVA_CHECKED := .tools/java-checked
READY := $(SYNCED) $(JAVA_CHECKED)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(SYNCED): pyproject.toml client/pyproject.toml uv.lock setup/environment.sh setup/find-uv.sh setup/find-python.sh
	@setup/environment.sh
	@touch $@

# Once, whatever came out: a machine that may not have Java is not asked again with every command.
$(JAVA_CHECKED): setup/java.sh
	@setup/java.sh
	@mkdir -p $(@D) && touch $@

.PHONY: setup
setup: $(SYNCED) ## Install everything that is missing: uv, the locked packages, Java where that is allowed
	@setup/java.sh
	@mkdir -p $(dir $(JAVA_CHECKED)) && touch $(JAVA_CHECKED)
	@setup/appcds.sh
	@echo "Ready. Next: make demo"

.PHONY: demo
demo: $(READY) ## Show a purge, an erasure and a replication from end to end on samples in a temporary folder
	@$(BIN)/lethe demo $(args)

.PHONY: run
run: $(READY) ## Start the service on this machine
	@$(BIN)/lethe serve $(args)

.PHONY: fmt
fmt: $(SYNCED) ## Format the code and mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: check
check: $(SYNCED) ## Lint, types, layers and the rules of the house
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/style

.PHONY: test
test: $(READY) ## Run the tests, without those marked long
	@setup/run-tests.sh $(workers) $(args)

.PHONY: test-fast
test-fast: $(READY) ## Run the tests that need no server, no service and no JVM: for while you work
	@setup/run-tests.sh $(workers) --fast $(args)

.PHONY: test-long
test-long: $(READY) ## Run all tests: a hundred kills, a thousand random databases
	$(BIN)/pytest $(args)

.PHONY: bench
bench: $(READY) ## Measure: every program in benchmarks/, one after the other
	@set -e; for program in $$(grep -l __main__ benchmarks/*.py); do echo "== $$program"; $(BIN)/python $$program $(args); done

.PHONY: openapi
openapi: $(SYNCED) ## Write openapi/openapi.json anew from the code
	@mkdir -p openapi
	@$(BIN)/python -m app.openapi > openapi/.openapi.json.new
	@mv openapi/.openapi.json.new openapi/openapi.json

.PHONY: migrate
migrate: $(READY) ## Bring the metadata database to the newest schema
	@$(BIN)/lethe migrate $(args)
