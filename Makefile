# The README's two commands are `make demo` and `make test`; both need only Python 3.11 or newer and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Errors only: pip's remarks about this machine's package sources are not shown. Python compiles what it imports, which
# is a small part of what is installed.
PIP := PIP_NO_COMPILE=1 $(BIN)/python -m pip --disable-pip-version-check -qq
# What the tests need beyond the extras. moto is installed separately, and with the botocore that s3fs needs: otherwise pip
# takes the newest one, which s3fs refuses.
TORCH := torch==2.13.0
TABLES := pandas duckdb
INSTALL_MOTO = $(PIP) install 'moto[s3,server]>=5' "botocore==$$($(BIN)/python -c 'import botocore; print(botocore.__version__)')"
# The test that runs the code of a page of the documentation; some pages need JAX or Stable-Baselines3.
PAGES := tests/test_docs.py::test_the_code_of_a_page_runs_and_prints_what_follows_it
# Where the tests are that need Stable-Baselines3, which are marked `interop`; the test that needs ale-py alone.
INTEROP := tests/defaults/test_sb3.py tests/explain/test_record.py tests/learn/deep/test_agent_sb3.py \
	tests/learn/deep/test_compiled_defaults.py "$(PAGES)[guides/use_agent.md]"
# Where tests outside tests/learn/deep need JAX, pgx or ale-py.
GAMES := tests/explain/test_record.py tests/explain/test_replays.py tests/experiments/test_compiled_play.py
ALE := tests/wrappers/test_lazy_vector_action.py::test_atari_vector_env

.PHONY: demo test lint types pytest extras test-interop test-deep test-sweep test-browser seeds soak docs format bench results reports screenshots clean

demo: $(VENV)/demo
	$(BIN)/lazymdp reproduce --out demo

test: lint types pytest

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy

pytest: $(VENV)/dev
	$(BIN)/pytest -n 2 --dist worksteal -m "not browser and not interop and not sweep" --ignore=tests/learn/deep

# Stable-Baselines3 (its models as default policies, its learners on top, agents in its place) and ale-py's vector
# environment: two minutes.
test-interop: $(VENV)/interop
	$(BIN)/pytest -n 2 -m interop $(INTEROP)
	# ale-py can hang when its process ends: try a second time instead of waiting forever.
	timeout 300 $(BIN)/pytest $(ALE) || timeout 300 $(BIN)/pytest $(ALE)

# The deep agents, with JAX, pgx and ale-py: mostly compilation, so faster once JAX's compilation cache is filled.
test-deep: $(VENV)/deep
	$(BIN)/pytest -n 2 --dist worksteal -m "not interop" tests/learn/deep $(GAMES) "$(PAGES)[guides/cookbook.md]"

# Sweeps: processes, a Ray cluster that loses a node (first, because it takes longest), and moto's S3 server.
test-sweep: $(VENV)/sweep
	$(BIN)/pytest -n 2 --dist worksteal tests/sweep/test_ray_pool.py tests/sweep tests/cli/test_sweep.py

# The explorer and the report in a real browser: needs Chromium (Debian: apt-get install chromium), on PATH or named by CHROMIUM.
test-browser: $(VENV)/dev
	$(BIN)/pytest -n 2 --dist loadfile -m browser tests/show tests/explain

# Every learning test with 20 seeds: at least 19 must pass each. Writes benchmarks/results/seeds.csv.
# One thread for each process, because pytest uses all cores.
seeds: $(VENV)/deep $(VENV)/interop
	JAX_PLATFORMS=cpu OMP_NUM_THREADS=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false \
		$(BIN)/pytest -n auto -q -m learning --seeds 20 tests

# 10,000 random models against rational arithmetic, 1,000 damaged files, 60 killed processes: 10 to 20 minutes on two cores.
soak: $(VENV)/deep
	$(BIN)/python tests/soak/soak.py

docs: $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Documentation: $(CURDIR)/docs/_build/html/index.html"

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Compares speed with other libraries, in a separate virtual environment (benchmarks/.venv).
bench:
	$(PYTHON) benchmarks/exact.py
	$(PYTHON) benchmarks/path.py
	$(PYTHON) benchmarks/tabular.py
	$(PYTHON) benchmarks/deep.py
	$(PYTHON) benchmarks/summary.py

# The committed results, which the README and the docs show; then the screenshots of the explorer.
results: $(VENV)/core
	$(BIN)/lazymdp reproduce --out results
	$(BIN)/lazymdp reproduce minatar --out results

# The reports that the documentation links, with a screenshot of each; needs Chromium.
reports: $(VENV)/deep $(VENV)/interop
	$(BIN)/python docs/reports.py

screenshots: $(VENV)/dev
	$(BIN)/python docs/screenshots.py docs/pictures

clean:
	rm -rf $(VENV) benchmarks/.venv demo docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/lazymdp/jax-tests"  # what the tests have compiled

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e .
	touch $@

$(VENV)/demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[explain]'
	touch $@ $(VENV)/core

$(VENV)/dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[dev]'
	touch $@ $(VENV)/core

$(VENV)/docs: pyproject.toml | $(VENV)/bin/python
	$(PIP) install -e '.[docs]'
	touch $@

# What `make docs`, `test-interop`, `test-deep` and `test-sweep` need, installed at once, which is faster.
extras: $(VENV)/extras

$(VENV)/extras: pyproject.toml $(VENV)/dev
	$(PIP) install $(TORCH) -e '.[dev,docs,deep,minatar,atari,sb3,ray,cloud]' $(TABLES)
	$(INSTALL_MOTO)
	touch $(VENV)/docs $(VENV)/interop $(VENV)/deep $(VENV)/sweep $@

$(VENV)/deep: pyproject.toml $(VENV)/dev
	$(PIP) install -e '.[dev,deep,minatar,atari]'
	touch $@

$(VENV)/sweep: pyproject.toml $(VENV)/deep
	$(PIP) install -e '.[dev,deep,minatar,ray,cloud]' $(TABLES)
	$(INSTALL_MOTO)
	touch $@

$(VENV)/interop: pyproject.toml $(VENV)/dev
	$(PIP) install $(TORCH)
	$(PIP) install -e '.[dev,deep,sb3]' 'ale-py>=0.11'
	touch $@
