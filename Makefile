# Everything a newcomer needs: `make serve` (the demo), `make test`, `make check`, `make bench`.
# Wants Python 3.11 or newer, a C++ compiler and pip; the rest is set up here.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PY     := .venv/bin/python
JOBS   ?= 2
BENCH  ?= build/bench

.PHONY: venv model serve test check bench clean

venv: .venv/.stamp
.venv/.stamp: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# SmolLM2-135M-Instruct, fetched and converted once into a cache folder.
model: venv
	$(PY) -m deployments.demo_model

serve: model
	.venv/bin/freehold serve --demo

check: venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pyright
	.venv/bin/lint-imports

# Tests that start a real service come last and alone: each wants both cores and its own ports.
# One torch thread a worker, else the workers fight for the cores.
test: model
	OMP_NUM_THREADS=1 $(PY) -m pytest -m 'not service' --numprocesses $(JOBS) --dist loadfile
	$(PY) -m pytest -m service

# Against the service that `make serve` keeps running in another terminal.
bench: venv
	mkdir -p $(BENCH)
	.venv/bin/freehold bench chatbot --json $(BENCH)/chatbot.json
	.venv/bin/freehold bench rounds --json $(BENCH)/rounds.json
	.venv/bin/freehold bench gateway --json $(BENCH)/gateway.json

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
