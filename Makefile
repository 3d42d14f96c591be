# make install       makes .venv; the other targets call it
# make check         before each commit: lint, types, the import contract, the API, the docs' words and links; a minute
# make gate          what every change must pass, 16 to 30 minutes: all of these, and the judging by the real programs
# make test          the quick tests
# make test-interop  those with Spark, Apache Kafka, Redis and ZooKeeper themselves; the first time Spark is installed
# make test-all      both
# make spark         all of Spark, in place of its Python code only: what these and the next two call
# make laboratory    what kills, searches or works at random, for hours
# make demo      the main job, on what a real Kafka wrote
# make bench     what it measures on this machine
# make docs      the API reference, in build/docs
# make lint      lint, format, types, the import contract
# make wheel     a wheel in dist/ that needs no compiler where it is installed

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null && echo "$$python" && break; done)
BIN := .venv/bin
PIP = PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet
STAMP := .venv/.installed
COMPILED := .venv/.compiled
SPARK := .venv/.spark
KERNELS := $(wildcard src/odradek/records/kernels/*.py src/odradek/records/kernels/*.pxd)

# The interop tests find the modules of all tests compiled by the quick ones: half of what collecting them takes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install spark test test-interop check gate laboratory test-all demo bench docs lint wheel check-java clean

install: $(COMPILED)

$(STAMP): pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "Odradek needs Python 3.11 or later: install it, or say make PYTHON=..." >&2; exit 1; }
	@cc=$$("$(PYTHON)" -c 'import os, sysconfig; print((os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0])'); \
	command -v "$$cc" > /dev/null || { echo "Odradek compiles its kernels and needs a C compiler ($$cc): install gcc or clang." >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2> /dev/null || { echo "$(PYTHON) lacks its venv module: install it (Debian: python3-venv)." >&2; exit 1; }
	@echo "Making .venv with $$("$(PYTHON)" --version) ..."
	@"$(PYTHON)" -m venv .venv
	@echo "Compiling the kernels, half a minute ..."
	@# Not isolated, so that what compiles later sees the same Cython, and compiles only what changed.
	@$(PIP) install 'setuptools>=77' 'cython>=3.3'
	@$(PIP) install --no-build-isolation --editable .
	@echo "Installing what the tests and the checks need ..."
	@# Not compiled: of 80 MB of Python a quarter is imported, and compiled then.
	@$(PIP) install --no-compile 'odradek[dev]'
	@# The quick tests need Spark's Python code, which is here without the 450 MB of its Java code.
	@[ -e $(SPARK) ] || $(PIP) install --no-compile --no-build-isolation --no-deps pyspark-client
	@# Where Python is told to write no bytecode, each start would compile all of it.
	@$(BIN)/python -m compileall -q src
	@echo "Odradek is installed: $(BIN)/odradek --help"
	@touch $(STAMP)

# Compiles what has changed since.
$(COMPILED): $(STAMP) setup.py $(KERNELS)
	@$(BIN)/python setup.py --quiet build_ext --inplace $(if $(wildcard $(COMPILED)),$(if $(filter setup.py,$?),--force))
	@touch $(COMPILED)

$(SPARK): $(STAMP)
	@echo "Installing Spark, about half a gigabyte ..."
	@$(PIP) uninstall --yes pyspark-client 2> /dev/null
	@# With what a client of Spark Connect needs, which is tested, too.
	@$(PIP) install --no-compile --no-build-isolation 'odradek[spark]' 'pyspark[connect]'
	@# What drives Chromium, 160 MB, is for the same tests only.
	@$(PIP) install --no-compile axe-playwright-python playwright
	@touch $(SPARK)

spark: install $(SPARK)

# With TOLD=FOLDER the outcomes are written there as they come, and a list of failures is left to their reader (tests/gate).
PYTEST = $(BIN)/pytest $(if $(TOLD),-rN --max-worker-restart 1 --told="$(TOLD)")

test: install
	$(PYTEST)

test-interop: spark
	$(PYTEST) --dist loadfile --no-loadscope-reorder -m '(interop or spark or slow) and not laboratory'

# SEED=4711 does again what was done with that seed.
laboratory: spark
	$(if $(SEED),ODRADEK_SEED=$(SEED) )$(PYTEST) --dist loadfile --no-loadscope-reorder -m laboratory

test-all: spark test test-interop

check: lint docs
	$(PYTEST) tests/unit/test_api.py tests/unit/test_architecture.py tests/unit/test_docs.py tests/unit/test_flags.py tests/unit/test_front.py tests/unit/test_imports.py

gate:
	.ci/run

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: install
	$(BIN)/python docs/reference.py build/docs
	@echo "Open build/docs/index.html."

# Whatever an earlier build left in build/ would be in the wheel, too.
wheel: install
	@rm -rf build/wheel build/lib* build/bdist* dist
	@echo "Building the wheel: compiling the kernels, half a minute ..."
	@$(PIP) wheel --no-deps --wheel-dir build/wheel .
	@echo "Checking which systems it runs on ..."
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	@ls dist/*.whl

check-java:
	@found=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	[ "$${found:-0}" -ge 17 ] || { echo "The demo runs Spark, which needs Java 17 or later: install it, or set JAVA_HOME." >&2; exit 1; }

demo: check-java spark
	@[ -d demo/log-dir ] || { mkdir -p demo && $(BIN)/python -m tarfile -e tests/vectors/kafka-4.3.1.tar.xz demo; }
	@echo "Somebody appends to the log while the job runs (examples/feed.py) ..."
	@$(BIN)/python examples/feed.py demo/log-dir v2-none --seconds 600 & feeder=$$!; trap "kill $$feeder 2> /dev/null" EXIT; \
	$(BIN)/odradek pipeline run examples/wordcount.toml --follow 10

bench: spark
	@for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python "$$benchmark" || exit 1; done

clean:
	rm -rf .venv build demo dist src/odradek/records/kernels/*.so src/odradek/records/kernels/*.c
