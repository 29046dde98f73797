# Everything needs only Python 3.11+, make and a package index; the rest installs itself.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV ?= .venv
# With which `make test` runs the tests of connections: distributions have older patch releases.
SYSTEM_PYTHON ?= /usr/bin/python3
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Images of containers often forbid compiled files; each of the hundreds of processes that tests start would compile all
# that it loads again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## list the targets
	@echo 'Use and change the checkout:'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'Releases and research:'
	@awk -F ':.*#- ' '/^[a-z0-9-]+:.*#- / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or later is needed; set PYTHON=/path/to/it. Found: $$($(PYTHON) --version)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(READY): requirements-dev.txt pyproject.toml | $(BIN)/pip
	@# The output is shown only after a failure: setuptools prints a banner of warnings about editable installations.
	@$(BIN)/python -m devenv.progress "Installing the development packages in $(VENV), about a minute" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.txt
	@$(BIN)/python -m devenv.progress "Installing the checkout in $(VENV)" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: setup
setup: $(READY) ## create the virtual environment with pinned dependencies

# Without $(READY): the build needs no packages of Python, so `make test` installs them at the same time.
.PHONY: tools
tools: $(BIN)/pip
	@$(BIN)/python -m devenv.binaries etcd kube-apiserver kube-controller-manager kubectl helm > /dev/null

.PHONY: demo
demo: $(READY) ## show Services that get addresses, on one machine: animated on a terminal, text in a pipe
	@$(BIN)/python -m devenv.demo || test $$? -eq 130

.PHONY: recording
recording: $(READY) #- record the demo as docs/images/demo.svg
	@$(BIN)/python -m devenv.demo --recording docs/images/demo.svg

.PHONY: dev
dev: $(READY) ## start two clusters and the controller for manual work
	@# Ctrl-C is how it ends, and no error.
	@$(BIN)/python -m devenv.demo --keep || test $$? -eq 130

.PHONY: acceptance
acceptance: $(READY) ## test an installed controller: GUEST=kubeconfig HARVESTER=cloud-config, SKIP='dhcp vm', SWAP=1
	@test -n "$(GUEST)" -a -n "$(HARVESTER)" || { echo "Set GUEST and HARVESTER to the kubeconfigs of both clusters." >&2; exit 1; }
	@$(BIN)/python -m devenv.acceptance $(addprefix --skip=,$(SKIP)) $(if $(SWAP),--swap) $(GUEST) $(HARVESTER)

.PHONY: check
check: $(READY) ## check format, lint, types, complexity and imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/complexipy --plain harvester_ccm
	$(BIN)/lint-imports --no-logo

.PHONY: unit
unit: $(READY) ## run the unit tests
	$(BIN)/python -m pytest -q tests/unit

SEEDS ?= 1000
MINUTES ?= 600

.PHONY: soak
soak: $(READY) #- run the whole controller in memory with SEEDS unseen schedules, from FIRST, or for MINUTES; SEED=n prints one
	@$(BIN)/python -m tests.simulation.soak $(if $(SEED),--seed $(SEED),--seeds $(SEEDS) --minutes $(MINUTES) $(if $(FIRST),--first $(FIRST)))

.PHONY: system-packages
system-packages: $(READY)
	@$(BIN)/python -m devenv.systempython --prepare $(SYSTEM_PYTHON)

.PHONY: test test-all
test: ## run all checks and tests, hundreds of them on real API servers
	@# In parallel, because the checks use mostly one core, and the first build of the tools starts with downloads.
	@$(MAKE) --no-print-directory -j2 check tools system-packages
	@# Each test runs once, with the Python from which it can learn more; test-all runs all of them with both.
	$(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder \
	  $(or $(THOROUGH),$$($(BIN)/python -m devenv.systempython --ignored $(SYSTEM_PYTHON)))
	@$(BIN)/python -m devenv.systempython $(SYSTEM_PYTHON)
	@if command -v $(PROMTOOL) > /dev/null; then $(MAKE) --no-print-directory alerts; fi

test-all: THOROUGH = --thorough
test-all: test ## the same with the tests that are slow and rarely fail, and more random examples

KUBERNETES ?= oldest

.PHONY: test-kubernetes
test-kubernetes: $(READY) #- run the tests with guest clusters of another Kubernetes: KUBERNETES=oldest or newest
	@$(BIN)/python -m devenv.kubernetes $(KUBERNETES) -q -n auto --dist loadfile --no-loadscope-reorder -m apiserver

.PHONY: coverage
coverage: $(READY) tools #- run all tests, and print the lines that none reaches and the coverage of the product
	@rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --thorough
	@$(BIN)/coverage combine -q && $(BIN)/coverage json -q -o .coverage.json
	@$(BIN)/coverage report --show-missing --skip-covered
	@$(BIN)/python -c 'import json; t = json.load(open(".coverage.json"))["totals"]; \
	  print("lines: %.1f %%, branches: %.1f %%" % (t["percent_statements_covered"], t["percent_branches_covered"]))'

.PHONY: bench
bench: $(READY) #- measure speed, requests and memory; NODES=500 or SERVICES=5000 for larger clusters
	@$(BIN)/python -m benchmarks $(if $(NODES),--nodes $(NODES)) $(if $(SERVICES),--services $(SERVICES))

HOSTILE_SECONDS ?= 300

.PHONY: bench-hostile
bench-hostile: $(READY) #- attack the controller for about 25 minutes; fails if a limit is exceeded; PARTS='texts sharing'
	@$(BIN)/python -m benchmarks.hostile --seconds $(HOSTILE_SECONDS) $(PARTS)

.PHONY: generate
generate: $(READY) ## generate reference pages, pictures, manifests and snapshots of the chart
	$(BIN)/python -m devenv.reference
	$(BIN)/python scripts/generate_reference.py
	$(BIN)/python -m devenv.manifests
	HARVESTER_CCM_RENEW_SNAPSHOTS=1 $(BIN)/python -m pytest -q tests/deploy/test_chart_rendering.py

.PHONY: names
names: #- write the names in deploy/names.toml in place of their placeholders
	@$(PYTHON) scripts/replace_names.py

.PHONY: dist
dist: $(READY) #- build the Python package in dist/
	@$(BIN)/python -m devenv.package dist

IMAGE ?= localhost/harvester-ccm:dev
VERSION ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# docker or podman; without an engine buildah, whose images runc or crun runs.
ENGINE ?= docker
# What the image is built from; empty: the base image that the Dockerfile names.
BASE_IMAGE ?=
# buildah then needs no runc or crun, which do not work on every machine and in every container.
export BUILDAH_ISOLATION ?= chroot

define require_engine
	@command -v $(ENGINE) > /dev/null || \
	  { echo "$(ENGINE) is missing: install it, or set ENGINE to one of docker, podman, buildah" >&2; exit 1; }
	@$(ENGINE) info > /dev/null 2>&1 || \
	  { echo "'$(ENGINE) info' fails: start the engine, or set ENGINE to one of docker, podman, buildah" >&2; exit 1; }
endef

.PHONY: image
image: ## build the container image IMAGE; DOCKER_FLAGS for options, ENGINE=podman or buildah
	$(require_engine)
	$(ENGINE) build $(DOCKER_FLAGS) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
	  --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) -t $(IMAGE) .

.PHONY: image-base
image-base: #- build the image BASE_IMAGE from Debian packages, without a registry
	$(require_engine)
	ENGINE=$(ENGINE) scripts/debian_base_image.sh $(or $(BASE_IMAGE),localhost/debian-python) $(SUITE)

PROMTOOL ?= promtool

.PHONY: alerts
alerts: #- check and test the alert rules; requires promtool
	@command -v $(PROMTOOL) > /dev/null || { echo "$(PROMTOOL) is missing: install it, or say PROMTOOL=where-it-is" >&2; exit 1; }
	$(PROMTOOL) check rules deploy/charts/harvester-cloud-provider/files/rules.yaml
	$(PROMTOOL) test rules deploy/monitoring/rules_test.yaml

.PHONY: docs
docs: ## build the documentation in site/; a broken link is an error
	@test -x site-env/bin/mkdocs || { $(PYTHON) -m venv site-env && $(PYTHON) -m devenv.progress \
	  "Installing mkdocs in site-env" site-env/bin/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes -r docs/requirements.txt; }
	NO_MKDOCS_2_WARNING=1 site-env/bin/mkdocs build --strict --quiet
	@! grep -rlE '<(script|link|img|iframe)[^>]+(src|href)="?(https?:)?//' site --include='*.html' \
	  || { echo "These pages load something from another server." >&2; exit 1; }

.PHONY: e2e-kind
e2e-kind: $(READY) #- test image and chart on kind clusters; requires Docker, kind, kubectl and helm
	PYTHON=$(BIN)/python scripts/e2e_kind.sh

SPECS ?= quick

.PHONY: e2e-cluster
e2e-cluster: $(READY) #- test image and chart on nodes with kubelets and containers; requires Linux and root; SPECS=all, KEEP=1
	@$(BIN)/python -m devenv.cluster --specs '$(SPECS)' $(if $(HARVESTER_BIN),--harvester-bin $(HARVESTER_BIN)) \
	  $(if $(KEEP),--keep) $(addprefix --set=,$(VALUES))

.PHONY: e2e-kube-vip
e2e-kube-vip: $(READY) #- run the controller next to KUBE_VIP=all or a version; SCENE=any-state; RECORD=1 records it; Linux and root
	@$(BIN)/python -m devenv.machine 'make e2e-kube-vip'
	@$(BIN)/python -m devenv.e2ekubevip --scene $(if $(RECORD),record,$(or $(SCENE),cases)) $(addprefix --version=,$(KUBE_VIP))

.PHONY: e2e-harvester
e2e-harvester: $(READY) #- run the controller next to the Harvester programs in HARVESTER_BIN; SCENES='hundred vm'; Linux and root
	@HARVESTER_BIN=$(HARVESTER_BIN) $(BIN)/python -m devenv.e2eharvester --check $(SCENES)
	@$(BIN)/python -m devenv.binaries etcd kube-apiserver kube-controller-manager kubectl > /dev/null
	@HARVESTER_BIN=$(HARVESTER_BIN) unshare --net $(BIN)/python -m devenv.e2eharvester $(SCENES)

.PHONY: recordings
recordings: $(READY) #- record the Harvester programs in HARVESTER_BIN for the tests of the emulator; Linux and root
	@HARVESTER_BIN=$(HARVESTER_BIN) $(BIN)/python -m devenv.recordharvester --check $(ONLY)
	@$(BIN)/python -m devenv.binaries etcd kube-apiserver kube-controller-manager > /dev/null
	@HARVESTER_BIN=$(HARVESTER_BIN) $(BIN)/python -m devenv.recordharvester $(ONLY)

PINS = $(BIN)/pip-compile -q -U --generate-hashes --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-header

.PHONY: pins
pins: $(READY) #- pin the newest dependencies that pyproject.toml allows, and the newest tools of a release
	$(PINS) -o requirements.txt pyproject.toml
	$(PINS) --extra dev --allow-unsafe -o requirements-dev.txt pyproject.toml
	echo pip-audit | $(PINS) --allow-unsafe -o requirements-audit.txt -
	echo uv | $(PINS) -o requirements-publish.txt -
	sed -i '1i # Pinned runtime dependencies, made from pyproject.toml by `make pins`.\n' requirements.txt
	sed -i '1i # Pinned development dependencies, made from pyproject.toml by `make pins`.\n' requirements-dev.txt
	sed -i '1i # Pinned tool that looks for known vulnerabilities before a release, made by `make pins`.\n' requirements-audit.txt
	sed -i '1i # Pinned tool that uploads the Python package of a release, made by `make pins`.\n' requirements-publish.txt

.PHONY: clean
clean: ## remove what was built in the checkout; the cache of binaries stays
	rm -rf $(VENV) .venv-system site-env build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .complexipy_cache .coverage*
