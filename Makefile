# `make help` lists the targets. Everything is installed into .venv: the files whose hashes are in requirements/.
# Requires make and Python 3.11 or newer. On a GPU, Triton compiles kernels at first use, with a C compiler.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
PARTS := peft_format kernels engine adapter_store prompts gateway finetune trainer panel demo cli migrations
TYPECHECK := build/typecheck
PROTO_VENV := .venv-proto
LISTS := constraints.txt $(wildcard requirements/*.txt)
ARGS ?=
# `no` installs the versions of constraints.txt without a check of their files: for builds of PyTorch that requirements/ lacks.
# requirements/install.py reads it.
REQUIRE_HASHES ?= yes
# Four more than the number of processors, because many tests wait for other processes; 3 GB of memory for each.
WORKERS ?= $(shell $(PYTHON) -c 'import os; \
	print(max(1, min(8, len(os.sched_getaffinity(0)) + 4, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (3 << 30))))' \
	2>/dev/null || echo 2)

export REQUIRE_HASHES

# $(call install_tool,ENVIRONMENT,LIST) installs a tool of requirements/ into an environment of its own.
define install_tool
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/$(2).txt
endef

build_site = @NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

.DEFAULT_GOAL := help
.PHONY: help serve test test-long check proto site wheel lock constraints clean clean-all

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

# With bytecode: compiling the sources would take seconds of each start, and a second of each of the tests' hundreds of processes.
serve: $(VENV)/.installed-serve ## Install missing packages and serve the demo
	@echo "==> starting the server with the demo"
	@unset PYTHONDONTWRITEBYTECODE; exec $(BIN)/loragate serve --demo

test: $(VENV)/.installed-dev ## Run the tests; ARGS="-k name" selects some
	@unset PYTHONDONTWRITEBYTECODE; OMP_NUM_THREADS=1 exec $(BIN)/python -m pytest -m "not long" --workers $(WORKERS) $(ARGS)

test-long: $(VENV)/.installed-dev ## Run the tests that take minutes each
	@exec $(BIN)/python -m pytest -m long $(ARGS)

check: $(VENV)/.installed-dev ## Check formatting, lint, types, layers and the documentation
	@echo "==> format"
	@$(BIN)/ruff format --check .
	@echo "==> lint"
	@$(BIN)/ruff check .
	@echo "==> types"
	@rm -rf $(TYPECHECK)/loragate && mkdir -p $(TYPECHECK)/loragate
	@for part in $(PARTS); do ln -s ../../../$$part $(TYPECHECK)/loragate/$$part; done
	@ln -s ../../../proto/loragate/v1 $(TYPECHECK)/loragate/v1
	@cd $(TYPECHECK) && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache \
		$(PARTS:%=-p loragate.%)
	@echo "==> layers"
	@$(BIN)/lint-imports --no-cache
	@echo "==> documentation"
	@$(MAKE) --no-print-directory build/site/index.html

proto: $(PROTO_VENV)/.installed ## Regenerate the stubs from proto/*.proto
	@cd proto && ../$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I . \
		--python_out=. --pyi_out=. --grpc_python_out=. loragate/v1/*.proto

site: $(VENV)/.installed-dev ## Build the documentation as a site in build/site
	$(build_site)

# Parts of the documentation are made from the program. A folder is newer when a page was added to it or removed.
build/site/index.html: $(VENV)/.installed-dev $(wildcard $(shell git ls-files ':!tests' 2>/dev/null)) $(shell find docs -type d)
	$(build_site)

wheel: $(VENV)/.installed-dev ## Build dist/*.whl and dist/*.cdx.json, the list of all that it depends on
	@rm -rf build/lib build/bdist.*
	@$(BIN)/python -m build --wheel --no-isolation
	@$(BIN)/python requirements/sbom.py dist

lock: build/lock/bin/uv ## Update requirements/ to pyproject.toml, at the versions in constraints.txt
	@PATH="$(CURDIR)/build/lock/bin:$$PATH" build/lock/bin/python requirements/lock.py

constraints: build/lock/bin/uv ## Update constraints.txt and requirements/ to the newest compatible versions
	@PATH="$(CURDIR)/build/lock/bin:$$PATH" build/lock/bin/python requirements/lock.py --upgrade

clean: ## Remove the output of builds and checks
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean ## Also remove the virtual environments (keeps the data in .loragate)
	@rm -rf $(VENV) $(PROTO_VENV)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is required but was not found"; exit 1; }
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.installed-serve: pyproject.toml $(LISTS) | $(BIN)/python
	@$(BIN)/python requirements/install.py serve
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(LISTS) | $(BIN)/python
	@$(BIN)/python requirements/install.py dev
	@touch $@ $(VENV)/.installed-serve

$(PROTO_VENV)/.installed: requirements/proto.txt
	@echo "==> creating $(PROTO_VENV) for protoc"
	@$(PYTHON) -m venv $(PROTO_VENV)
	$(call install_tool,$(PROTO_VENV),proto)
	@touch $@

build/hadolint/bin/hadolint: requirements/hadolint.txt
	@echo "==> creating build/hadolint"
	@mkdir -p build && $(PYTHON) -m venv build/hadolint
	$(call install_tool,build/hadolint,hadolint)
	@touch $@

build/lock/bin/uv: requirements/uv.txt
	@echo "==> creating build/lock for uv"
	@mkdir -p build && $(PYTHON) -m venv build/lock
	$(call install_tool,build/lock,uv)
	@touch $@
