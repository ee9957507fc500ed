# Two commands do everything on a fresh machine: `make demo` and `make test`. `make help` lists all.
.PHONY: help demo demo-clients quick test test-all lint native docs kafka fuzz sim explore eos soak walk workers registry secrets parity spark spark-eos bench bench-spark callgrind clean
.DEFAULT_GOAL := test

PY := .venv/bin/python
PY311 := .venv-3.11/bin/python
PYSPARK := .venv-spark/bin/python
PYBENCH := .venv-bench/bin/python
PIP := -m pip install --disable-pip-version-check --quiet
LOUD_PIP := -m pip install --disable-pip-version-check
# Empty if there is no Java that Spark can use.
JAVA := $(shell java -version 2>&1 | grep -E 'version "(1[7-9]|[2-9][0-9])')
# What an environment is made from; when it changes, packages are installed again.
PROJECT := pyproject.toml setup.py
# What native modules are made from; when it changes, those that it concerns are compiled again.
NATIVE := setup.py $(shell find aiokclient -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -name '*.h') \
    $(patsubst %.pxd,%.py,$(shell grep -rl --include='*.pxd' --exclude-dir=_native '^cdef class' aiokclient))

# Packages are installed while native modules are compiled and Kafka is downloaded.
MAKEFLAGS += --jobs=2

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2} \
	    /^## / {printf "                %s\n", substr($$0, 4)}' Makefile

demo: demo-clients $(if $(JAVA),.venv-spark/.demo) ## a demonstration that checks itself
## its second half, the metrics of clients on Spark, needs Java 17
ifneq ($(JAVA),)
	@$(PYSPARK) examples/telemetry_pipeline.py
else
	@echo "left out: the metrics of clients on Spark (Java 17 or newer is not on the PATH)"
endif

# The first half, which is shown before Spark is downloaded for the second.
demo-clients: .venv/.demo
	@$(PY) examples/demo.py

quick: .venv/.test .venv/.native ## lint, types, and the quick tests: about a minute
## leaves out tests that are slow, need Kafka or Java, draw their input, or make something fail
	$(PY) .ci/test.py --quick

ifdef T
test: .venv/.test .venv/.native
	$(PY) -m pytest -q $(T)
else
test: .venv/.test .venv/.native .venv-3.11/.native .venv-spark/.native kafka ## all checks and all tests, with a real Kafka
## T=path runs the tests there alone, T="path -k name" those of the name
	$(PY) .ci/test.py
endif

test-all: .venv/.test .venv/.native .venv-3.11/.all .venv-3.11/.native .venv-spark/.native kafka ## takes hours: all tests also
## on Python 3.11, in pure Python, in every kind of event loop, and a wheel in a bare environment
	AIOKCLIENT_EXPLORE=1 $(PY) .ci/test.py --all

lint: .venv/.test ## ruff, mypy, and the import contracts (make quick runs them too)
	$(PY) .ci/test.py --only lint

spark: .venv-spark/.native kafka ## all tests of the Spark source and sink, the long ones included
## T="tests/spark/test_batch.py -k name" runs those alone
	$(PYSPARK) -m pytest -q $(or $(T),tests/spark)

native: .venv/.native .venv-3.11/.native ## compile the native modules that have changed, without pip

docs: .venv/.docs ## the site of the documentation, in build/docs; every warning is an error
## DOCS_EXTERNAL=1 also looks up external links, and reads other projects' inventories
	$(PY) -m sphinx -n -W --keep-going -q -E -b html docs build/docs
	@if [ -n "$$DOCS_EXTERNAL" ]; then $(PY) -m sphinx -q -b linkcheck docs build/linkcheck; fi

.PHONY: screens
screens: .venv/.test .venv/.native ## the screens and plots of the site, in both color schemes: about two minutes
	$(PY) docs/make_screens.py

kafka: .venv/.test ## download Apache Kafka for the tests
	.ci/need-java
	.ci/need-krb5 $(PY)
	$(PY) tests/harness fetch

fuzz: .venv/.test .venv/.native ## random input for each decoder; FUZZ=seconds for each
## then the native ones once more, under the sanitizers
	AIOKCLIENT_FUZZ=$(or $(FUZZ),60) $(PY) -m pytest -q -p no:cacheprovider --timeout=0 -m fuzz tests
	AIOKCLIENT_FUZZ=$(or $(FUZZ),60) .ci/fuzz-sanitized $(PY)

sim: .venv/.test .venv/.native ## SEED=n replays one seed of the simulation, SEEDS=n runs that many
	AIOKCLIENT_SIM_SEED=$(SEED) AIOKCLIENT_SIM_SEEDS=$(or $(SEEDS),2000) \
	    $(PY) -m pytest -q --numprocesses=auto --dist=worksteal --timeout=0 tests/faults/simulation/test_seeds.py \
	    $(if $(SEED),,tests/faults/simulation/test_transaction_level_changes.py)

explore: .venv/.test .venv/.native ## services with known faults, and mended ones, under faults in virtual time
## SEEDS=1667 of each mended service, from the seed FIRST=0 on; over 10,000 of all in half an hour; fetches nothing
	AIOKCLIENT_EXPLORE_SEEDS=$(or $(SEEDS),1667) AIOKCLIENT_EXPLORE_FIRST=$(FIRST) \
	    $(PY) -m pytest -q -s --numprocesses=auto --dist=worksteal --timeout=0 tests/faults/simulation/test_explored_services.py

eos: .venv/.test .venv/.native kafka ## exactly-once processing while brokers and processes are killed
## RUNS=n of each case, with the seeds from SEED on
	AIOKCLIENT_EOS_SEED=$(SEED) AIOKCLIENT_EOS_RUNS=$(or $(RUNS),1) $(PY) -m pytest -q -s tests/faults/kafka/test_exactly_once.py

soak: .venv/.test .venv/.native kafka ## MINUTES=10 of every kind of client and fault at once, on three brokers with TLS and SCRAM
## SEED=n repeats the faults of a run; BREAK=A (B, ... L) breaks that promise on purpose, so that it fails
	AIOKCLIENT_SOAK_MINUTES=$(or $(MINUTES),10) AIOKCLIENT_SOAK_SEED=$(SEED) AIOKCLIENT_SOAK_BREAK=$(BREAK) \
	    $(PY) -m pytest -q -s tests/faults/kafka/test_soak.py

walk: .venv/.test .venv/.native kafka ## random walks of admin calls while brokers are killed, and other long tests of Admin
## 500 calls on three real brokers, SEEDS=20 times as many on an embedded cluster; SEED=n repeats one; CALLS=n
	AIOKCLIENT_WALK_SEED=$(SEED) AIOKCLIENT_WALK_SEEDS=$(SEEDS) AIOKCLIENT_WALK_CALLS=$(CALLS) \
	    $(PY) -m pytest -q -s --timeout=0 -m walk $(or $(T),tests/faults tests/behavior/admin tests/behavior/command_line)

registry: .venv/.test .venv/.native ## schemas with Apicurio Registry, a real one with the API of Confluent's
## fetches it through Maven (142 MB, once); needs Java 17; T="path -k name"
	.ci/need-java
	$(PY) tests/harness fetch-registry
	$(PY) -m pytest -q -m registry $(or $(T),tests/behavior/schema)

workers: .venv/.test .venv/.native ## groups of workers amid kills, rebalances, and brokers that die, in virtual time
## SEEDS=20 of each kind of fleet from SEED on, and 100,000 records of each: by order, group protocol, registry, topics, transactions
	AIOKCLIENT_WORKER_SEED=$(SEED) AIOKCLIENT_WORKER_SEEDS=$(SEEDS) \
	    $(PY) -m pytest -q --numprocesses=auto --dist=worksteal --timeout=0 -m workers tests/faults/simulation/test_worker_fleets.py tests/faults/simulation/test_worker_fleets_by_topic.py tests/faults/simulation/test_worker_cancellation.py

.PHONY: share
share: .venv/.test .venv/.native ## share groups amid kills, failing handlers, moves, and brokers that die, in virtual time
## SEEDS=200 from SEED on, and 1,000 records whose handlers take three locks
	AIOKCLIENT_SHARE_SEED=$(SEED) AIOKCLIENT_SHARE_SEEDS=$(SEEDS) \
	    $(PY) -m pytest -q --numprocesses=auto --dist=worksteal --timeout=0 -m share tests/faults/simulation/test_share_fleets.py tests/faults/simulation/test_share_renewals.py

.PHONY: share-real
share-real: .venv/.test .venv/.native kafka ## share groups on real brokers amid kills, beside Java's and librdkafka's consumers
## fetches Kafka 4.1, 4.2, and 4.3 (130 MB, once); SEEDS=10 of each kind from SEED on; about an hour
	$(PY) tests/harness fetch-sharing
	AIOKCLIENT_SHARE_SEED=$(SEED) AIOKCLIENT_SHARE_SEEDS=$(SEEDS) \
	    $(PY) -m pytest -q -s --timeout=0 -m share_real $(or $(T),tests/faults/kafka)

secrets: .venv/.test .venv/.native ## use known passwords, tokens, and keys everywhere, and search all output for them
## LEAK=channel leaks one on purpose (log, repr, locals, ...), so that it fails
	AIOKCLIENT_LEAK=$(LEAK) $(PY) -m pytest -q tests/behavior/security/test_secrets.py

parity: .venv/.test .venv/.native kafka ## each call of Java's Admin beside ours, on the embedded cluster and two real ones
## takes five minutes; needs javac; SCENARIO=text chooses by name; SCENARIO=sample RECORD=1 writes what `make test` expects
	AIOKCLIENT_PARITY=1 AIOKCLIENT_SCENARIO="$(SCENARIO)" AIOKCLIENT_RECORD=$(RECORD) \
	    $(PY) -m pytest -q tests/behavior/admin/test_calls_of_java.py

bench: .venv-bench/.bench kafka ## benchmarks beside other clients; RUNS=n of each; SCALE=x times the messages
## uses an interpreter that was built with PGO or LTO, if there is one
	$(PYBENCH) benchmarks/run.py --runs $(or $(RUNS),5) --scale $(or $(SCALE),1)
	$(PYBENCH) benchmarks/memory.py
	$(PYBENCH) benchmarks/transactions_memory.py

spark-eos: .venv-spark/.native kafka ## the exactly-once sink of Spark while processes and brokers are killed; RUNS=n
	AIOKCLIENT_EOS_RUNS=$(or $(RUNS),2) $(PYSPARK) -m pytest -q --numprocesses=2 --dist=worksteal tests/spark/test_exactly_once.py

bench-spark: .venv-spark/.native kafka ## the Spark source and sink beside Spark's own Kafka connector; RUNS=n of each
## takes a quarter of an hour; `make bench` adds its result to its own; MEMORY=1000 watches the memory of 1,000 batches
	$(PYSPARK) benchmarks/spark.py --runs $(or $(RUNS),5) --memory $(or $(MEMORY),0) \
	    --json build/benchmarks/spark.json --markdown build/benchmarks/spark.md

.PHONY: tools
tools: .venv/.test .venv/.native kafka ## options of Kafka's tools and of kcat beside those of aiokclient: about five minutes
## fetches what `make kafka` does (150 MB, once); needs Java 17 to 23 with javac, and kcat: apt-get install kcat
	$(PY) -m pytest -q -m tools $(or $(T),tests/behavior)

.PHONY: adapter
adapter: .venv/.test .venv/.native ## the suites of aiokafka and FastStream, and three frameworks, on the adapter for aiokafka
## fetches aiokafka v0.14.0, FastStream 0.7.4, and about 90 packages (230 MB, once); KAFKA=real on a real Kafka
	.ci/run-adapter-suites $(PY) $(KAFKA)

callgrind: .venv/.test .venv/.native ## instructions of the client for each message, batch, and import, into benchmarks/callgrind.md
## BASE=commit compares with that commit instead, and fails if a row is over 3% higher
	.ci/need-valgrind
	$(if $(BASE),PATH="$(CURDIR)/.venv/bin:$$PATH" .ci/compare-instructions $(BASE),\
	    $(PY) benchmarks/callgrind.py --markdown benchmarks/callgrind.md)

clean: ## remove everything that was installed, compiled or downloaded
	rm -rf .venv .venv-3.11 .venv-spark .venv-bench .kafka .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
	find aiokclient -name '*.so' -delete

.venv/bin/python:
	@echo "setup: creating a virtual environment in .venv"
	"$$(.ci/find-python newest)" -m venv .venv

.venv-spark/bin/python:
	"$$(.ci/find-python newest)" -m venv .venv-spark

.venv-3.11/bin/python:
	"$$(.ci/find-python 3.11)" -m venv .venv-3.11

# Not quiet: the first time takes a minute or two, most of it for compiling the native modules.
.venv/.demo: $(PROJECT) $(NATIVE) | .venv/bin/python
	@echo "setup, 1 of 3: updating pip"
	$(PY) $(LOUD_PIP) --upgrade pip
	@echo "setup, 2 of 3: installing aiokclient and its dependencies (compiling takes a minute)"
	$(PY) $(LOUD_PIP) --editable . "rich>=13"
	@echo "setup, 3 of 3: done"
	@$(PY) -c "import aiokclient; print('native modules:', 'yes' if aiokclient.native else 'no')"
	@touch $@

# Installed without its native modules, which .native compiles: there only what has changed.
.venv/.test: $(PROJECT) | .venv/bin/python
	$(PY) $(PIP) --upgrade pip
	AIOKCLIENT_PURE=1 $(PY) $(PIP) --editable . --group native --group test --group peers --group schema-peers --group lint --group examples "uvloop>=0.19"
	touch $@

.venv/.docs: .venv/.test
	$(PY) $(PIP) --group docs
	touch $@

.venv-bench/bin/python:
	"$$(.ci/find-python optimized)" -m venv .venv-bench

.venv-bench/.bench: $(PROJECT) $(NATIVE) | .venv-bench/bin/python
	$(PYBENCH) $(PIP) --upgrade pip
	AIOKCLIENT_PURE=1 $(PYBENCH) $(PIP) --editable . --group native --group test --group peers --group schema-peers --group bench
	$(PYBENCH) setup.py --quiet build_ext --inplace --parallel=2
	.ci/need-krb5 $(PYBENCH)
	touch $@

.venv/.native: .venv/.test $(NATIVE)
	$(PY) setup.py --quiet build_ext --inplace --parallel=2
	touch $@ .venv/.demo

# The newest versions of all dependencies are in .venv, the lowest ones here.
# Installed after the other, because both describe the package in the same folder.
.venv-3.11/.test: $(PROJECT) .ci/lowest | .venv-3.11/bin/python .venv/.test
	$(PY311) $(PIP) --upgrade pip
	$(PY311) .ci/lowest > .venv-3.11/lowest.txt
	AIOKCLIENT_PURE=1 $(PY311) $(PIP) --editable . --group native --group test --group peers "uvloop>=0.19" --constraint .venv-3.11/lowest.txt
	touch $@

# Compiled after the other, because both write the same C files.
.venv-3.11/.native: .venv-3.11/.test $(NATIVE) | .venv/.native
	$(PY311) setup.py --quiet build_ext --inplace --parallel=2
	touch $@

.venv-3.11/.all: .venv-3.11/.test | .venv-3.11/.native
	$(PY311) $(PIP) --group lint --group examples --constraint .venv-3.11/lowest.txt
	touch $@

# Spark, a download of 456 MB, has an environment of its own. Spark finds data sources in the folders
# of sys.path, and the compatible mode of an editable installation is one.
.venv-spark/.test: $(PROJECT) | .venv-spark/bin/python .venv/.test
	$(PYSPARK) $(PIP) --upgrade pip
	AIOKCLIENT_PURE=1 $(PYSPARK) $(PIP) --editable ".[spark]" --config-settings editable_mode=compat --group native --group spark
	touch $@

# For the demonstration only; the environment of the tests contains everything of it.
.venv-spark/.demo: $(PROJECT) $(NATIVE) | .venv-spark/bin/python demo-clients
	@echo "setup of Spark: installing pyspark (a download of 456 MB)"
	$(PYSPARK) $(LOUD_PIP) --editable ".[spark]" --config-settings editable_mode=compat "matplotlib>=3.8" "rich>=13"
	@touch $@

.venv-spark/.native: .venv-spark/.test $(NATIVE) | .venv/.native
	$(PYSPARK) setup.py --quiet build_ext --inplace --parallel=2
	touch $@ .venv-spark/.demo
