# Every target sets itself up in an empty clone: a virtual environment in .venv, with the versions of constraints/local.txt.
#
#   make train    train a small model with the quickstart recipe, on a CPU
#   make test     all tests and doctests
#   make check    lint, formatting, types
#   make test-verl   the tests that start verl, in an environment of its own (.venv-verl), about 20 minutes on two cores
#   make docs     the examples and commands in the documentation, run and checked
#   make clean    remove .venv, caches and build output (runs/ stays)
#
# PYTHON=python3.12       another interpreter, 3.11 to 3.13
# RECIPE=... ARGS=...     another recipe for `make train`, and path=value overrides
# TORCH_INDEX=URL         install torch from this package index
# JOBS=4                  test processes

PYTHON ?= python3
RECIPE ?= quickstart
ARGS ?=
JOBS ?= 2
PYTEST_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
TORCH := $(shell sed -n 's/^torch==//p' constraints/local.txt)
# A changed dependency or pin is another stamp, so the environment is brought up to date, and only then.
KEY := $(shell cat pyproject.toml constraints/local.txt Makefile | cksum | cut -d' ' -f1)
TRAIN_READY := .venv/.train-$(KEY)
DEV_READY := .venv/.dev-$(KEY)

.PHONY: train test test-verl check docs clean

train: $(TRAIN_READY)
	$(BIN)/isentrope train $(RECIPE) $(ARGS)

# One thread per process: the tensors are small, and the processes share the cores.
test: $(DEV_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

# verl wants an older transformers than the other engines, so it has an environment of its own.
test-verl: .venv-verl/.ready-$(KEY)
	OMP_NUM_THREADS=1 .venv-verl/bin/python -m pytest tests/integrations/verl -m slow -p no:cacheprovider $(PYTEST_ARGS)

.venv-verl/.ready-$(KEY):
	$(PYTHON) -m venv .venv-verl
	@.venv-verl/bin/python -m pip --disable-pip-version-check install --quiet "torch==$(TORCH)+cpu" 2>/dev/null \
	  || .venv-verl/bin/python -m pip --disable-pip-version-check install --quiet "torch==$(TORCH)"
	@.venv-verl/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints/verl.txt \
	  verl==0.9.1 TransferQueue cachetools fastapi uvicorn msgspec mathruler nvtx qwen_vl_utils pandas pydantic pytest
	@.venv-verl/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --editable .
	@touch $@

check: $(DEV_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(DEV_READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest src tests/test_docs.py tests/test_examples.py $(PYTEST_ARGS)

clean:
	rm -rf .venv .venv-verl .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.created:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if (3, 11) <= v < (3, 14) else \
	  f"Isentrope needs Python 3.11 to 3.13 and {sys.executable} is {v.major}.{v.minor}: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	@touch $@

# torch first and alone: what comes after finds it there and can't swap the build. Without a GPU the CPU build is tried, which
# is far smaller; where the package index has none, the default build runs on a CPU as well.
.venv/.torch-$(TORCH): | .venv/.created
	@echo "Installing torch $(TORCH) into .venv"
	@if [ -n "$(TORCH_INDEX)" ]; then $(PIP) "torch==$(TORCH)" --index-url "$(TORCH_INDEX)"; \
	elif command -v nvidia-smi >/dev/null 2>&1; then $(PIP) "torch==$(TORCH)"; \
	else $(PIP) "torch==$(TORCH)+cpu" 2>/dev/null || $(PIP) "torch==$(TORCH)"; fi
	@touch $@

$(TRAIN_READY): .venv/.torch-$(TORCH)
	@echo "Installing isentrope[train] into .venv"
	@$(PIP) --constraint constraints/local.txt --editable ".[train]"
	@touch $@

$(DEV_READY): $(TRAIN_READY)
	@echo "Installing the test dependencies into .venv"
	@$(PIP) --constraint constraints/local.txt --editable ".[train,lora,smollm2,reasoning-gym,math,hub,tensorboard,trl,study,dev]"
	@touch $@
