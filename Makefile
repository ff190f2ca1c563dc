# Everything here works on a fresh machine with Python 3.11 or newer, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --python $(BIN)/python
PINS := tests/constraints.txt

.PHONY: lab test lint bench clean

lab: $(VENV)/.lab  ## open JupyterLab on the tour
	$(BIN)/python notebooks/open_lab.py

test: lint $(VENV)/.browser  ## run every test, the browser ones too
	$(BIN)/python -m pytest

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.browser  ## print the ratios that the README quotes
	$(BIN)/python -m tests.benchmarks

clean:
	rm -rf $(VENV) build dist test-output

$(BIN)/uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(PINS) uv

$(VENV)/.lab: $(BIN)/uv pyproject.toml $(PINS)
	$(UV) --quiet -c $(PINS) -e '.[lab]'
	touch $@

$(VENV)/.test: $(BIN)/uv pyproject.toml $(PINS)
	$(UV) --quiet -c $(PINS) -e '.[test]'
	touch $@ $(VENV)/.lab

$(VENV)/.browser: $(VENV)/.test
	$(BIN)/python tests/browser/chromium.py
	touch $@
