# Everything a newcomer types; `make study` first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: study test test-slow fuzz lint wheel-check clean

study: $(VENV)/.platform
	$(BIN)/topk run digits

test: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu and not ray"
	$(BIN)/python -m pytest tests -m "ray and not slow and not gpu"

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow

# Property tests with fresh seeds, so many examples of each; an hour in all on two cores.
EXAMPLES ?= 1500
fuzz: $(VENV)/.test
	FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest tests -n 2 --dist worksteal -m "hypothesis and not ray" --hypothesis-profile fuzz --timeout 0

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel-check: $(VENV)/.test
	PYTHON=$(PYTHON) .ci/check-wheel

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.platform: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[platform]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[platform,test]'
	@touch $@ $(VENV)/.platform

clean:
	rm -rf $(VENV) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
