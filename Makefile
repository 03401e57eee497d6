# Every command of this repository. `make` alone lists them.
#
# The first command that needs it makes `.venv` and installs what `uv.lock` says; later ones do that
# again only after `pyproject.toml` or `uv.lock` changed. Needs Python 3.11 or later and nothing else;
# `make test`, `make kafka` and `make conformance` also need Java 17 and Maven. Choose a Python with `make PYTHON=… …`.

.DEFAULT_GOAL := help
.SUFFIXES:
.NOTPARALLEL:

PYTHON  ?=
SEED    ?= 0
COUNT   ?= 1000
ROUNDS  ?= 10
MINUTES ?= 20
PART    ?=
FAMILIES ?=
BIN     := .venv/bin
READY   := .venv/.synced
PYTHONS := $(or $(PYTHON),python3.11 python3.12 python3.13 python3.14 python3 python)

# The environment is the lock file's: uv neither fetches another Python nor follows an active venv,
# and pyright runs on the node that the lock file pins.
export UV_PROJECT_ENVIRONMENT := .venv
export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export PYRIGHT_PYTHON_GLOBAL_NODE := 0
# Every process that tests start would compile Spark's modules again without their bytecode.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
unexport VIRTUAL_ENV

.PHONY: help
help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: preflight-demo $(READY) ## Run the orders example on Spark with generated orders, until Ctrl-C (Java 17)
	@$(BIN)/headrace example orders

.PHONY: demo-queries
demo-queries: preflight-demo $(READY) ## Run the user-views example with two instances that answer queries (Java 17)
	@$(BIN)/headrace example user-views --instances 2

.PHONY: picture
picture: preflight-demo $(READY) ## Draw the progress view of `make demo` for the README (Java 17)
	@$(BIN)/python -m tests.progress_picture

.PHONY: quick
quick: $(READY) ## Check what you type, in about a minute and a half: lint, types, and every test that needs no process
	@$(BIN)/python -m tests.run_tier quick

.PHONY: test
test: preflight-test $(READY) ## Run what every push must pass, in about 9 minutes (Java 17, Maven)
	@$(BIN)/python -m tests.run_tier test

.PHONY: nightly
nightly: preflight-test $(READY) ## Run everything there is, in about an hour, or a part: `make nightly PART=cluster`
	@$(BIN)/python -m tests.run_tier nightly $(PART)

.PHONY: fix
fix: $(READY) ## Format, apply ruff's safe fixes and write the generated page of the docs and pictures
	@$(BIN)/ruff check --fix --exit-zero
	@$(BIN)/ruff format
	@$(BIN)/python -c "$$SETTINGS_PAGE"
	@$(BIN)/python -m tests.example_pages
	@$(BIN)/python -m tests.inventory_page

.PHONY: transcripts
transcripts: preflight-test $(READY) ## Run every example on both logs, and write what they print to docs/transcripts (Java 17, Maven)
	@$(BIN)/python -m tests.example_transcripts

.PHONY: docs
docs: $(READY) ## Run every example of the README, the docs and the docstrings
	@$(BIN)/pytest --quiet tests/test_documentation.py

.PHONY: bench
bench: $(READY) ## Measure Headrace, Kafka Streams and PySpark, or two Headraces: `make bench AGAINST=HEAD~1` (Java 17, Maven)
ifdef AGAINST
	@$(BIN)/python benchmarks/bench.py --against '$(AGAINST)'
else
	@$(BIN)/python benchmarks/bench.py
	@$(BIN)/python benchmarks/state_growth.py
endif

.PHONY: bench-engine
bench-engine: $(READY) ## Measure the engine against a bare Python loop
	@$(BIN)/python benchmarks/engine.py
	@$(BIN)/python benchmarks/stateful.py

.PHONY: bench-queries
bench-queries: $(READY) ## Measure queries against their bars, beside Kafka Streams' own, in about four minutes (Java 17, Maven)
	@$(BIN)/python benchmarks/queries.py

.PHONY: conformance
conformance: preflight-conformance ## Run the scenarios with Kafka Streams in Java and compare (Java 17, Maven)
	@mvn --quiet --batch-mode --file conformance/java/pom.xml package
	@sh conformance/java/run.sh check --scenarios conformance/scenarios --goldens conformance/goldens
	@sh conformance/java/run.sh check \
		--scenarios conformance/differences/scenarios --goldens conformance/differences/goldens

.PHONY: fuzz
fuzz: conformance $(READY) ## Compare random programs with Kafka Streams: `make fuzz SEED=0 COUNT=1000`
	@PYTHONPATH=conformance $(BIN)/python -m headrace_conformance.fuzz --seed $(SEED) --count $(COUNT)

.PHONY: chaos
chaos: $(READY) ## Kill, cut and fill everything while applications run: `make chaos ROUNDS=10 SEED=0` (Java 17, Maven)
	@$(BIN)/python -m chaos --rounds $(ROUNDS) --seed $(SEED) $(if $(FAMILIES),--families $(FAMILIES))

.PHONY: chaos-hostile
chaos-hostile: COUNT = 100000
chaos-hostile: $(READY) ## Feed hostile records to every handler and count each drop: `make chaos-hostile SEED=0 COUNT=100000 BROKER=kafka`
	@$(BIN)/python -m chaos.hostile --seed $(SEED) --count $(COUNT) $(if $(filter kafka,$(BROKER)),--kafka)

.PHONY: load
load: $(READY) ## Hold the running aggregate at 60 % of its maximum speed with restarts: `make load MINUTES=20` (Java 17, Maven)
	@$(BIN)/python -m chaos.load --minutes $(MINUTES)

.PHONY: chaos-model
chaos-model: COUNT = 5000
chaos-model: $(READY) ## Run the start and the sink against a model of the broker: `make chaos-model SEED=0 COUNT=5000`
	@$(BIN)/python -m chaos.model --seed $(SEED) --count $(COUNT)

.PHONY: audit
audit: $(READY) ## Check every package of uv.lock for known vulnerabilities; fails if one cannot be checked (PyPI)
	@$(BIN)/python tests/audit.py

.PHONY: chaos-queries-model
chaos-queries-model: COUNT = 5000
chaos-queries-model: $(READY) ## Run the copies of queries against a model: `make chaos-queries-model SEED=0 COUNT=5000`
	@$(BIN)/python -m chaos.queries_model --seed $(SEED) --count $(COUNT)

.PHONY: chaos-queries
chaos-queries: ANSWERS = 100000
chaos-queries: KILLS = 20
chaos-queries: OPTIONS = --kafka
chaos-queries: $(READY) ## Read stores exactly while instances, the application and brokers are killed: `make chaos-queries ANSWERS=100000 KILLS=20` (Java 17, Maven)
	@$(BIN)/python -m chaos.queries --answers $(ANSWERS) --kills $(KILLS) --seed $(SEED) $(OPTIONS)

.PHONY: kafka
kafka: $(READY) ## Run a Kafka broker on 127.0.0.1:9092 until Ctrl-C (Java 17, Maven)
	@$(BIN)/headrace broker

.PHONY: clean
clean: ## Delete `.venv` and everything that was generated
	@rm -rf .venv .coverage* .dmypy.json .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache \
		build dist benchmarks/java/target benchmarks/results conformance/java/target \
		tests/brokers/kafka/target
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: preflight-demo preflight-test preflight-conformance
preflight-demo:
	@sh tests/preflight.sh java

preflight-test:
	@sh tests/preflight.sh java maven

preflight-conformance:
	@sh tests/preflight.sh javac maven

# Python 2 must be able to read this too, to say that it is too old.
define PROBE
import sys
version = "%d.%d.%d" % sys.version_info[:3]
try:
    import ensurepip, venv
except ImportError:
    version += " without venv"
print(version)
sys.exit(sys.version_info < (3, 11) or "venv" in version)
endef
define LOCKED_UV
import pathlib, tomllib
packages = tomllib.loads(pathlib.Path("uv.lock").read_text())["package"]
print(next(package["version"] for package in packages if package["name"] == "uv"))
endef
define SETTINGS_PAGE
import pathlib
from headrace.config import settings_reference
page = pathlib.Path("docs/settings.md")
written, heading, _ = page.read_text().partition("## Every setting\n\n")
page.write_text(written + heading + settings_reference())
endef
export PROBE LOCKED_UV SETTINGS_PAGE

# Each candidate is run, not only found: pyenv has shims for versions that are not active.
$(READY): pyproject.toml uv.lock
	@set -eu; \
	if ! $(BIN)/python -c "$$PROBE" >/dev/null 2>&1; then \
		python=; found=; \
		for candidate in $(PYTHONS); do \
			if version=$$($$candidate -c "$$PROBE" 2>/dev/null); then python=$$candidate; break; fi; \
			found="$$found$${version:+ $$candidate ($$version)}"; \
		done; \
		if [ -z "$$python" ]; then \
			echo 'Python 3.11 or later with its venv module is missing.' >&2; \
			echo "Found:$${found:- none of $(PYTHONS)}." >&2; \
			echo 'Install one (`apt install python3 python3-venv`, `brew install python@3.13`, `pyenv install 3.13`),' >&2; \
			echo 'or say where it is: `make PYTHON=/path/to/python3 test`.' >&2; \
			exit 1; \
		fi; \
		echo "Making .venv with $$python ($$version)"; \
		$$python -m venv --clear .venv; \
	fi; \
	if ! [ -x $(BIN)/uv ]; then \
		echo 'Installing uv into .venv'; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$$($(BIN)/python -c "$$LOCKED_UV")" || { \
			echo 'pip could not install uv, see above. A package index must be reachable.' >&2; exit 1; }; \
	fi; \
	echo 'Installing what uv.lock says'; \
	$(BIN)/uv sync --locked --quiet || { \
		echo 'uv could not install what uv.lock says, see above.' >&2; \
		echo 'If pyproject.toml changed, run `.venv/bin/uv lock` and commit the result.' >&2; exit 1; }; \
	if command -v java >/dev/null; then \
		echo 'Keeping the classes of Spark, so that it starts in half the time'; \
		$(BIN)/headrace warm-up --quiet || true; \
	fi; \
	touch $@
