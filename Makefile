PY := .venv/bin/python
.PHONY: venv model serve test check bench

venv: .venv/.stamp
.venv/.stamp: pyproject.toml constraints.txt
	python3 -m venv .venv
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints.txt torch==2.13.0
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

check: venv
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m pyright
	.venv/bin/lint-imports

test: venv
	$(PY) -m pytest
