# Every target sets up what it needs; a second run costs nothing.  `make help` lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# What is installed depends on the hashes in requirements/ alone: not on wheels that lie about on this machine, nor on
# an environment that happens to be active.
unexport PIP_FIND_LINKS PIP_NO_INDEX PIP_REQUIREMENT PIP_CONSTRAINT PIP_TARGET PIP_USER
unexport UV_FIND_LINKS UV_NO_INDEX UV_CONSTRAINT VIRTUAL_ENV PYTHONPATH PYTHONHOME

# Every process of a test or a benchmark would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# On machines whose network has an authority of its own, the system knows it.
export UV_SYSTEM_CERTS ?= 1

RUNS_US = -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
# The oldest Python that runs us comes first: it is the floor we promise.  PYTHON=... chooses another.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3.14 python3; do \
	"$$python" $(RUNS_US) && { echo "$$python"; break; }; done)
# The newest other one, on PATH or kept by pyenv.
NEWEST ?= $(shell for minor in 15 14 13 12; do \
	for python in python3.$$minor "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.$$minor.*/bin/python; do \
	"$$python" $(RUNS_US) && { echo "$$python"; exit; }; done; done)
# Test workers: three for each core, because most tests wait for a server most of the time (with two, a third of
# two cores stood idle); at most eight.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 3 ? 3 * cores : 8)))

BIN := .venv/bin
PYTEST := $(BIN)/pytest --numprocesses=$(WORKERS) --dist=worksteal

help:  ## this list
	@sed -En 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' Makefile | expand -t 16

setup: .venv/.project  ## the environment for development, in .venv
demo: .venv-demo/.project  ## a real etcd, real backups, a disaster, a restore to the second before it, the proof
	@.venv-demo/bin/rootcellar demo
test: check testbed  ## everything that must hold before a commit
	$(PYTEST)
testbed: .venv/.project  ## every etcd, S3 server and tool that tests start, in .cache/testbed
	@$(BIN)/python -m testbed.binaries || echo "tests that need what is missing will be skipped, or fail where CI is set"
check: .venv/.project .venv-gen/.installed  ## style, types, layers and generated code, without running any
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	.venv-gen/bin/python testbed/protos.py --check
	$(BIN)/python -m testbed.chart --check
fmt: .venv/.project  ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
fuzz: .venv/.project  ## every property against FUZZ_EXAMPLES (20,000) inputs; FUZZ=... goes to pytest
	$(PYTEST) -m "hypothesis and not long" --hypothesis-profile=fuzz --timeout=3600 $(FUZZ)
bench: .venv/.project testbed  ## the bars, on the small workload; BENCH=... goes to benchmarks/run.py
	$(BIN)/python -m benchmarks.run $(BENCH)
soak: .venv/.project testbed  ## agents beside a real cluster under random faults for SOAK_SECONDS (600); SOAK=... goes to it
	$(BIN)/python -m tests.soak.run --seconds $(or $(SOAK_SECONDS),600) $(SOAK)
bench-agent: .venv/.project testbed  ## the agent at rest and under 10,000 events/s; BENCH=... goes to benchmarks/agent.py
	$(BIN)/python -m benchmarks.agent $(BENCH)
bench-kube: .venv/.project testbed  ## 10,000 objects of one kind, 10,000 BackupEntries: first pass, memory, at rest; BENCH=... goes to both
	$(BIN)/python -m benchmarks.kube $(BENCH)
	$(BIN)/python -m benchmarks.kube_entries $(BENCH)
e2e: .venv/.project testbed  ## real pods on a node of Kubernetes that the test makes; needs root; E2E=... goes to pytest
	@$(BIN)/python -m testbed.cluster_programs || echo "tests that need what is missing will be skipped, or fail where CI is set"
	$(BIN)/pytest -m e2e --timeout=900 tests/e2e $(E2E)
cluster: .venv/.project  ## a Kubernetes cluster with a node, until Ctrl-C; needs root; CLUSTER="--load image.tar" adds images
	@$(BIN)/python -m testbed.cluster_programs
	@$(BIN)/python -m testbed.cluster $(CLUSTER)
image: .venv/.project  ## our image as a docker-archive, in IMAGE (dist/rootcellar.tar), without a container engine
	@mkdir -p dist
	@$(BIN)/python -m testbed.image_ours $(or $(IMAGE),dist/rootcellar.tar)
test-long: .venv/.project testbed  ## the tests that take minutes: whole matrices, every byte of every format
	$(PYTEST) -m long --timeout=3600
test-newest: .venv-newest/.project  ## the tests that start no server, on the newest Python of this machine
	.venv-newest/bin/pytest --numprocesses=$(WORKERS) -m "not servers and not long and not e2e"
gen: .venv/.project .venv-gen/.installed  ## the code of our protobuf messages, the chart's CRDs and role rules
	.venv-gen/bin/python testbed/protos.py
	$(BIN)/python -m testbed.chart
lock: .venv/.uv  ## pin the newest versions that pyproject.toml allows
	@compile() { $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 \
	  --custom-compile-command "make lock" --output-file "requirements/$$1.txt" "$${@:2}"; }; \
	compile uv requirements/uv.in; \
	compile dev pyproject.toml --extra s3 --extra azure --extra gcs --extra swift --extra oss --extra kube --group dev; \
	compile runtime pyproject.toml --constraints requirements/dev.txt; \
	compile image pyproject.toml --extra s3 --extra azure --extra gcs --extra swift --extra oss --extra kube \
	  --constraints requirements/dev.txt; \
	compile build --group build --constraints requirements/dev.txt; \
	compile demo --group demo --constraints requirements/dev.txt; \
	for group in gen testbed fake-gcs swift go; do compile "$$group" --group "$$group"; done
newest:
	@echo $(NEWEST)
.PHONY: newest help setup demo test testbed check fmt fuzz bench bench-agent bench-kube soak e2e cluster image test-long test-newest gen lock

# The rules of an environment: $(1) its directory, $(2) its Python, $(3) its requirement files.
#   .uv         it exists and has uv, the installer
#   .installed  what the requirement files pin is there.  uv takes seconds but reads neither pip's configuration nor
#               every machine's certificates; where it fails pip takes over, with the same hashes.
#   .project    rootcellar itself is there, as a link to src/
define environment
$(1)/.uv: requirements/uv.txt
	@test -n "$(2)" || { echo "no suitable Python with venv and pip (Debian: python3.11-venv); name one" >&2; exit 1; }
	$(2) -m venv --clear $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $$@
$(1)/.installed: $(1)/.uv $(3:%=requirements/%.txt)
	$(1)/bin/uv pip sync --quiet --python $(1)/bin/python --require-hashes $(3:%=requirements/%.txt) \
	  || $(1)/bin/python -m pip install --quiet --require-hashes $(3:%=-r requirements/%.txt)
	@touch $$@
$(1)/.project: $(1)/.installed pyproject.toml
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python --offline --no-deps --no-build-isolation --editable .
	@touch $$@
endef
$(eval $(call environment,.venv,$$(PYTHON),dev))
$(eval $(call environment,.venv-newest,$$(NEWEST),dev))
$(eval $(call environment,.venv-demo,$$(PYTHON),runtime demo))
$(eval $(call environment,.venv-gen,$$(PYTHON),gen))
