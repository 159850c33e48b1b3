# The project's habits. Every target sets up what it needs first; `args` goes to the program behind it:
#   make test args="-k purge"    make run args="--port 9000"    make test workers=0

SHELL := /bin/bash
.DEFAULT_GOAL := help
BIN := .venv/bin
args ?=
# Tests run side by side: a file is one worker's, servers and folders are each worker's own. More than half of their
# time they wait (leases, kills, timeouts): four keep two cores at work.
workers ?= 4
# Tests that cost much are run at one commit of five (tests/rotation.py): `make test turn=all` runs each.
turn ?= $(LETHE_TEST_TURN)
# Byte code is kept, whatever this machine is told: compiling all anew makes the start of a process twice as long.
unexport PYTHONDONTWRITEBYTECODE

# Made once, and again when what they were made from has changed.
SYNCED := .venv/.synced
JAVA_CHECKED := .tools/java-checked
READY := $(SYNCED) $(JAVA_CHECKED)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(SYNCED): pyproject.toml client/pyproject.toml client/sources/pyproject.toml uv.lock setup/environment.sh setup/find-uv.sh setup/find-python.sh setup/python_speed.py
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
	$(BIN)/pytest -q -n 2 --dist loadfile tests/style
	@$(MAKE) --no-print-directory audit

.PHONY: audit
audit: $(SYNCED) ## Look for known vulnerabilities in the locked packages; says where that could not be checked
	@$(BIN)/python setup/audit.py "$$(setup/tools.sh audit)" "$$(setup/find-uv.sh)"

.PHONY: sbom
sbom: $(SYNCED) ## Write dist/lethe.cdx.json: what an installation with all extras consists of (CycloneDX)
	@setup/sbom.sh

.PHONY: wheels
wheels: $(SYNCED) ## Build the wheels, and try them from an empty folder: without extras, with all of them, the sources
	@setup/wheels.sh

.PHONY: deploy
deploy: $(SYNCED) ## Check compose.yaml and the Helm chart against their schemas
	@"$$(setup/tools.sh deploy)/python" setup/deploy.py $(args)

.PHONY: docs
docs: $(SYNCED) ## Build the documentation into dist/docs; a broken link is an error
	@setup/docs.sh

.PHONY: test
test: $(READY) ## Run the tests, without those marked long; dear ones at one commit of five (turn=all: each)
	@LETHE_TEST_TURN=$(turn) setup/run-tests.sh $(workers) $(args)

.PHONY: test-fast
test-fast: $(READY) ## Run the tests that need no server, no service and no JVM: for while you work
	@LETHE_TEST_TURN=$(turn) setup/run-tests.sh $(workers) --fast $(args)

.PHONY: test-long
test-long: $(READY) ## Run all tests: a hundred kills, a thousand random databases
	$(BIN)/pytest $(args)

.PHONY: chaos
chaos: $(READY) ## Let everything go wrong for 15 minutes; no promise may be broken (args="--seconds 300 --seed 7")
	@$(BIN)/python -m tests.chaos $(args)

.PHONY: bench
bench: $(READY) ## Measure against the peers and write docs/benchmarks.md (args="--only rows" for one of the runs)
	@$(BIN)/python -m benchmarks.report $(args)

.PHONY: openapi
openapi: $(SYNCED) ## Write openapi/openapi.json anew from the code
	@mkdir -p openapi
	@$(BIN)/python -m app.openapi > openapi/.openapi.json.new
	@mv openapi/.openapi.json.new openapi/openapi.json

.PHONY: runbook
runbook: $(SYNCED) ## Write runbook, settings, commands and api of docs/reference anew from the code
	@$(BIN)/python -m app.runbook.page > docs/reference/.runbook.md.new
	@mv docs/reference/.runbook.md.new docs/reference/runbook.md
	@$(BIN)/python -m app.runbook.settings.page > docs/reference/.settings.md.new
	@mv docs/reference/.settings.md.new docs/reference/settings.md
	@$(BIN)/python -m app.cli.reference > docs/reference/.commands.md.new
	@mv docs/reference/.commands.md.new docs/reference/commands.md
	@$(BIN)/python -m app.runbook.api_page < openapi/openapi.json > docs/reference/.api.md.new
	@mv docs/reference/.api.md.new docs/reference/api.md

.PHONY: client
client: $(SYNCED) ## Write anew what of the client is made: its twin that waits, and the literals of OpenAPI
	@$(BIN)/python setup/async_client.py
	@$(BIN)/python setup/client_literals.py

.PHONY: console-pictures
console-pictures: $(READY) ## Write the pictures of docs/console anew, with Chromium
	@LETHE_CONSOLE_PICTURES=docs/console $(BIN)/pytest -q tests/console/test_pictures.py

.PHONY: migrate
migrate: $(READY) ## Bring the metadata database to the newest schema
	@$(BIN)/lethe migrate $(args)
