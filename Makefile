# Two commands: `make report` runs the main job on a saved run, `make test` runs the tests.
# Both set up what they need in .venv; only Python 3.11 to 3.13, make and a C compiler are
# expected to be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help report test fuzz lint format types accuracy power clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null || \
	  sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

report: $(INSTALLED) ## Where the time of a decode step goes, on the saved full recipe
	@$(BIN)/tracebook report fixtures/full-recipe/trace.sqlite

test: $(INSTALLED) ## All tests
	@$(BIN)/python -m pytest -n auto --dist loadfile

fuzz: $(INSTALLED) ## Many more rounds of broken files and interruptions (an hour)
	@TRACEBOOK_FUZZ_ROUNDS=$${ROUNDS:-50} TRACEBOOK_FUZZ_SEED=$${SEED:-1000} \
	  $(BIN)/python -m pytest tests/fuzz tests/test_interruption.py

lint: $(INSTALLED) ## Style and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(INSTALLED) ## Write the format that lint checks
	@$(BIN)/ruff format .

types: $(INSTALLED) ## Static types
	@$(BIN)/mypy

accuracy: $(INSTALLED) ## Score the labels on generated traces (minutes)
	@$(BIN)/python -m tests.accuracy.generate --out build/accuracy
	@$(BIN)/python -m tests.accuracy.score build/accuracy

power: $(INSTALLED) ## How often checks are right, by simulation (a minute)
	@$(BIN)/python -m benchmarks.power

clean: ## Remove the environment and what tools left
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find tracebook tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; \
	  sys.exit(None if (3, 11) <= v <= (3, 13) else \
	  "Python 3.11 to 3.13 is needed, this is %d.%d: make PYTHON=python3.12 ..." % v)'
	@echo "Setting up $(VENV) ..." >&2
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
