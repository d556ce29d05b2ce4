# The README's two commands are `make demo` and `make test`; both need only Python 3.11 or newer and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Errors only: what pip thinks of this machine's package sources is not ours to show.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: demo test lint types pytest test-interop format bench pictures clean

demo: $(VENV)/core
	$(BIN)/python examples/two_worlds.py demo

test: lint types pytest

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy

pytest: $(VENV)/dev
	$(BIN)/pytest -n 2 --ignore=tests/interop

# With Stable-Baselines3 (its models as defaults, its learners on top) and ale_py's vector environment: two minutes.
test-interop: $(VENV)/interop
	$(BIN)/pytest -n 2 tests/interop
	# ale_py can hang when its process ends: a second try rather than a wait for ever.
	timeout 300 $(BIN)/pytest tests/test_vector_wrappers.py || timeout 300 $(BIN)/pytest tests/test_vector_wrappers.py

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Compares speed with other libraries, in an environment of its own (benchmarks/.venv).
bench:
	$(PYTHON) benchmarks/exact.py
	$(PYTHON) benchmarks/path.py
	$(PYTHON) benchmarks/tabular.py
	$(PYTHON) benchmarks/summary.py

# The pictures of the README and the docs.
pictures: $(VENV)/core
	$(BIN)/python examples/two_worlds.py docs/pictures

clean:
	rm -rf $(VENV) benchmarks/.venv demo .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e .
	touch $@

$(VENV)/dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[dev]'
	touch $@ $(VENV)/core

$(VENV)/interop: pyproject.toml $(VENV)/dev
	$(PIP) install torch==2.13.0
	$(PIP) install -e '.[dev,sb3]' 'ale-py>=0.11'
	touch $@
