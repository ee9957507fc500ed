# Two commands do everything on a fresh machine: `make demo` and `make test`.
.PHONY: demo test test-all lint kafka fuzz sim bench clean
.DEFAULT_GOAL := test

PY := .venv/bin/python
PIP := -m pip install --disable-pip-version-check --quiet
LOUD_PIP := -m pip install --disable-pip-version-check
# What an installation is made from; when it changes, it is made anew.
SOURCES := pyproject.toml setup.py $(wildcard $(foreach e,pyx pxd h,aiokclient/*.$(e) aiokclient/*/*.$(e)))

demo: .venv/.demo
	@$(PY) examples/demo.py

test: .venv/.test .venv-3.11/.test kafka
	$(PY) .ci/test.py

test-all: .venv/.test .venv-3.11/.all kafka
	AIOKCLIENT_EXPLORE=1 $(PY) .ci/test.py --all

lint: .venv/.test
	$(PY) .ci/test.py --only lint

kafka: .venv/.test
	.ci/need-java
	$(PY) tests/harness fetch

# FUZZ=seconds for each decoder; then the native ones once more, under the sanitizers
fuzz: .venv/.test
	AIOKCLIENT_FUZZ=$(or $(FUZZ),60) $(PY) -m pytest -q -p no:cacheprovider --timeout=0 -m fuzz tests
	AIOKCLIENT_FUZZ=$(or $(FUZZ),60) .ci/fuzz-sanitized $(PY)

# SEED=n replays one seed, SEEDS=n runs that many
sim: .venv/.test
	AIOKCLIENT_SIM_SEED=$(SEED) AIOKCLIENT_SIM_SEEDS=$(or $(SEEDS),2000) $(PY) -m pytest -q -s --timeout=0 tests/faults/simulation/test_seeds.py

# RUNS=n of each; SCALE=x times the messages
bench: .venv/.bench kafka
	$(PY) benchmarks/run.py --runs $(or $(RUNS),5) --scale $(or $(SCALE),1)
	$(PY) benchmarks/memory.py

clean:
	rm -rf .venv .venv-3.11 .kafka .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info

.venv/bin/python:
	@echo "setup: creating a virtual environment in .venv"
	"$$(.ci/find-python newest)" -m venv .venv

.venv-3.11/bin/python:
	"$$(.ci/find-python 3.11)" -m venv .venv-3.11

# Not quiet: the first time takes a minute or two, most of it for compiling the native modules.
.venv/.demo: $(SOURCES) | .venv/bin/python
	@echo "setup, 1 of 3: updating pip"
	$(PY) $(LOUD_PIP) --upgrade pip
	@echo "setup, 2 of 3: installing aiokclient and its dependencies (compiling takes a minute)"
	$(PY) $(LOUD_PIP) --editable . "rich>=13"
	@echo "setup, 3 of 3: done"
	@$(PY) -c "import aiokclient; print('native modules:', 'yes' if aiokclient.native else 'no')"
	@touch $@

.venv/.test: $(SOURCES) | .venv/bin/python
	$(PY) $(PIP) --upgrade pip
	$(PY) $(PIP) --editable . --group test --group peers --group lint --group examples "uvloop>=0.19"
	touch $@ .venv/.demo

.venv/.bench: .venv/.test
	$(PY) $(PIP) --editable . --group bench
	touch $@

# The newest versions of all dependencies are in .venv, the lowest ones here.
.venv-3.11/.test: $(SOURCES) .ci/lowest | .venv-3.11/bin/python
	.venv-3.11/bin/python $(PIP) --upgrade pip
	.venv-3.11/bin/python .ci/lowest > .venv-3.11/lowest.txt
	.venv-3.11/bin/python $(PIP) --editable . --group test --group peers "uvloop>=0.19" --constraint .venv-3.11/lowest.txt
	touch $@

.venv-3.11/.all: .venv-3.11/.test
	.venv-3.11/bin/python $(PIP) --group lint --group examples --constraint .venv-3.11/lowest.txt
	touch $@
