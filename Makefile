# Everything works from a fresh clone: each target sets up what it needs.
PYTHON ?= python3
BIN    := .venv/bin
HUB    := $(BIN)/python -m
NAME   ?=
SEEDS  ?= 1000
FIRST  ?= 0
WORLD  ?=
ARGS   ?=

.DEFAULT_GOAL := help
.PHONY: help setup test unit lint fmt sim bench demo up down kafka kafka-stop kafka-tool clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready ## the virtual environment, and a Kafka to start (once; again when pyproject.toml changes)

.venv/.ready: pyproject.toml hub_app/dev/kafka/jars.lock
	$(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(HUB) hub_app.dev.broker fetch
	@touch $@

test: lint ## the whole suite, linters first (ARGS="-k name" for a part)
	@$(BIN)/pytest $(ARGS)

unit: setup ## the tests that need no Kafka and no network: seconds
	@$(BIN)/pytest tests/unit tests/property $(ARGS)

lint: setup ## ruff, mypy, and the import law
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

fmt: setup ## format, and mend what ruff can
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

sim: setup ## random worlds, and planted faults that must be found (SEEDS=1000 FIRST=0 WORLD=dispatch|inbox|days|model)
	@$(HUB) tests.simulation.run --seeds $(SEEDS) --first $(FIRST) --world "$(WORLD)" $(ARGS)

bench: setup ## NAME=ingest|sender|e2e|latency|crash|isolation|backlog|handover|api|pull; the last line is one JSON object
	@test -n "$(NAME)" || { echo "usage: make bench NAME=$$(ls tests/bench | sed -n 's/^\([a-z]*\)\.py$$/\1/p' | paste -sd '|' -)"; exit 2; }
	@$(HUB) tests.bench.$(NAME) $(ARGS)

demo: setup ## the hub, a Kafka and sinks, live, in about a minute
	@$(HUB) hub_app.dev.demo $(ARGS)

up: setup ## like demo, and leave it running
	@$(HUB) hub_app.dev.demo up $(ARGS)

down: setup ## end what `make up` started
	@$(HUB) hub_app.dev.demo down $(ARGS)

kafka: setup ## start a Kafka that stays (KAFKA_BROKERS=… uses yours)
	@$(HUB) hub_app.dev.broker start

kafka-stop: setup ## end it; its data stays
	@$(HUB) hub_app.dev.broker stop

kafka-tool: setup ## Kafka's own tools: ARGS="topics --list", ARGS="consume --topic … --from-beginning"
	@$(HUB) hub_app.dev.broker tool $(ARGS)

clean: ## delete what tests and builds leave behind
	rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
