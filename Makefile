# The lock was resolved on Python 3.11.
PYTHON ?= python3.11
# Torch is needed by some tests only, which skip without it: `make install TORCH=0` leaves it out.
TORCH ?= 1
# Extra arguments for pytest or a benchmark: `make test ARGS="-k public"`.
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
UV := $(shell command -v uv)
STAMP := $(VENV)/.installed-torch$(TORCH)

# MLflow and Evidently report usage to their makers unless told not to.
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true

.DEFAULT_GOAL := help
.PHONY: help install lock demo up quickstart boundaries intrusion gas-drift images docs build test \
	test-slow test-flaky golden lint format bench bench-paper bench-scale bench-verdict faults clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv and install the locked dependencies (TORCH=0: without torch)

# --seed: uv leaves pip out otherwise.
$(PY):
	$(if $(UV),uv venv --seed --python $(PYTHON) $(VENV),$(PYTHON) -m venv $(VENV))

# Torch always comes through pip: its CPU build is often found by pip's configuration only.
$(STAMP): pyproject.toml requirements.lock requirements-torch.lock benchmarks/requirements.txt | $(PY)
	$(if $(UV),uv pip install --quiet --python $(PY),$(PIP) install) -r requirements.lock
	$(if $(filter 1,$(TORCH)),$(PIP) install -r requirements-torch.lock)
	$(if $(filter 1,$(TORCH)),$(PIP) install --no-deps -r benchmarks/requirements.txt)
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

lock: ## Write the lock files from what .venv holds
	$(PY) -m tools.lock

demo: install ## Judge a fortnight of handwritten digits, from the first window to a pending review
	$(VENV)/bin/rtscv-mlops demo

up: install ## Start Airflow and MLflow here, with the demo's data; Ctrl-C stops all of it
	$(PY) -m tools.up

quickstart: install ## Run the estimator alone on three windows of digits
	$(PY) -m examples.quickstart

boundaries: install ## Draw the decision boundaries of docs/estimator.md
	$(PY) -m examples.boundaries

gas-drift: install ## Tell drift from a gas never taught, over years of real sensors
	$(PY) -m examples.gas_drift $(ARGS)

images: install ## Show house numbers to a small network of photographs
	$(PY) -m examples.images $(ARGS)

# Data: docs/story-intrusion.md says which file RTSCV_DATA_DIR must hold.
intrusion: install ## Judge a fortnight of network traffic with 17 attacks never taught (NSL-KDD)
	$(PY) -m examples.intrusion $(ARGS)

# A file's tests share what they start, so they stay in one process; the long ones come first.
test: install ## Run the fast tests
	$(PY) -m pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder --durations=25 $(ARGS)

# Exit code 5 says that no test is marked slow yet, which is no failure.
test-slow: install ## Run the slow tests
	$(PY) -m pytest -m slow $(ARGS) || [ $$? -eq 5 ]

golden: install ## Compare what commands print and write with what was recorded
	$(PY) -m tools.golden compare $(ARGS)

# An end of February far from today: a month that is short, and a year that is not this one.
test-flaky: install ## Run the fast tests twice in random order, under load and on another date
	$(PY) -m tools.flaky --runs 2 --load --date 2027-02-28 $(ARGS)

lint: install ## Check style, format, types and layers
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m pytest -q tests/test_architecture.py

docs: install ## Build the documents as a site, in site/
	$(PY) -m tools.docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build # with --quiet a warning would be no error

build: install ## Build the wheel and the source distribution, in dist/
	$(PY) -m hatchling build

format: install ## Fix style and format
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench: install .venv-nannyml/.installed ## Measure what a run costs, in ratios beside their goals
	$(PY) -m benchmarks.cost $(ARGS)

# NannyML needs an older pandas than we do.
.venv-nannyml/.installed: benchmarks/requirements-nannyml.txt
	$(PYTHON) -m venv .venv-nannyml
	.venv-nannyml/bin/python -m pip --quiet --disable-pip-version-check install -r $<
	touch $@

bench-scale: install ## Measure what a second Celery worker, and a second Dask worker, are worth
	$(PY) -m benchmarks.celery_scale $(ARGS)
	$(PY) -m benchmarks.dask_scale $(ARGS)

# One thread per process: the benchmark runs processes side by side, and timings must not depend
# on how many cores a linear algebra library happens to find.
bench-verdict bench-paper: export OMP_NUM_THREADS := 1
bench-verdict bench-paper: export OPENBLAS_NUM_THREADS := 1
bench-verdict: install ## Run the verdict benchmark
	$(PY) -m benchmarks.verdict $(ARGS)

bench-paper: install ## Compare every system of the paper; goes on where it was stopped
	$(PY) -m benchmarks.paper $(ARGS)

faults: export OMP_NUM_THREADS := 1
faults: install ## Try every promise about faults, rivals and hostile data many times (hours)
	$(PY) -m benchmarks.faults $(ARGS)

clean: ## Remove caches and build results; .venv stays
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist site
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
