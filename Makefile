# Two commands: `make lab` opens the course, `make test` runs every test and every notebook.
# `make lecture` shows the talk, `make handout` writes it and all notebooks into one file;
# `make site` builds the browser edition into the folder site, `make serve` shows it;
# `make bench` measures the live engine; `make notebooks` executes the notebooks; `make versions` runs unit tests and
# notebooks on the lowest versions allowed and on the newest Python found.

PYTHON ?= python3
FIRST := notebooks/20_1_what_you_will_learn.ipynb
# Settings for JupyterLab as the course wants it; see tools/jupyter.
export JUPYTER_CONFIG_PATH := $(CURDIR)/tools/jupyter

# Tests that drag and glide run by themselves, with all cores.
ALONE := tests/test_browser.py tests/test_stage.py
# A run that leaves a process behind fails.
WATCHED := .venv/bin/python tests/nothing_stays.py .venv/bin/python -m pytest
INSTALL := .venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e
# Pyodide's compiled wheels; where this names no folder they are fetched.
export WHEELS ?= $(wildcard ../shared/pyodide)

LITE := .venv/share/jupyter/labextensions/@jupyterlite
# JupyterLite's kernel is put where JupyterLab does not see it, which would try to load it, and complain.
MOVE_LITE = if [ -d $(LITE) ]; then rm -rf .venv/lite && mkdir .venv/lite && mv $(LITE) .venv/lite; fi

.PHONY: lab test versions lecture handout site serve notebooks bench

lab: .venv/.lab
	.venv/bin/python tools/lab.py $(FIRST) $(LAB_OPTIONS)

test: .venv/.test
	.venv/bin/python -m ruff check .
	.venv/bin/python -m ruff format --check .
	$(WATCHED) --numprocesses=2 --dist=loadfile $(ALONE:%=--ignore=%) $(PYTEST_OPTIONS)
	$(WATCHED) $(ALONE) $(PYTEST_OPTIONS)

versions: .venv/.test
	.venv/bin/python tests/other_versions.py

lecture: .venv/.lecture
	.venv/bin/python tools/lecture.py $(LECTURE_OPTIONS)

handout: .venv/.lecture
	.venv/bin/python tools/handout.py

site: .venv/.site
	.venv/bin/python tools/browser_edition.py

serve: .venv/.site
	.venv/bin/python tools/browser_edition.py --serve

notebooks: .venv/.test
	.venv/bin/python tools/notebooks.py

bench: .venv/.bench site
	.venv/bin/python tools/bench.py
	.venv/bin/python tools/bench_browser.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; found " + sys.version.split()[0] + ". Name another one: make lab PYTHON=python3.12")'
	$(PYTHON) -m venv .venv

.venv/.lab: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) .
	@touch $@

.venv/.lecture: .venv/.lab
	$(INSTALL) '.[lecture]'
	@touch $@

.venv/.site: .venv/.lab
	$(INSTALL) '.[site]'
	@$(MOVE_LITE)
	@touch $@

# All at once: each of the others would ask pip again.
.venv/.test: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) '.[lecture,site,test]'
	@$(MOVE_LITE)
	@touch .venv/.lab .venv/.lecture .venv/.site $@

.venv/.bench: .venv/.test
	$(INSTALL) '.[test,bench]'
	@touch $@
