# `make help` lists the targets. Everything is installed into .venv, at the versions in constraints.txt.
# Requires make and Python 3.11 or newer; nothing is compiled.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
VENV := .venv
BIN := $(VENV)/bin
PARTS := peft_format kernels engine adapter_store prompts gateway finetune panel demo cli migrations
TYPECHECK := build/typecheck
PROTO_VENV := .venv-proto
ARGS ?=
# One more than the number of processors, because many tests wait for other processes.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(4, len(os.sched_getaffinity(0)) + 1))' 2>/dev/null || echo 2)

# Runs pip and reports what it downloads; shows pip's whole output when it fails.
define PIP_WITH_PROGRESS
import subprocess, sys
pip = subprocess.Popen([sys.executable, "-m", "pip", "install", *sys.argv[1:]],
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
output = []
try:
    for line in pip.stdout:
        output.append(line)
        words = line.split()
        if words[:1] == ["Downloading"]:
            print("   ", *words[1:4], flush=True)
        elif line.startswith("Installing collected packages"):
            print(f"    installing {line.count(',') + 1} packages", flush=True)
except KeyboardInterrupt:
    pip.terminate()
status = pip.wait()
if status:
    sys.stdout.writelines(output)
sys.exit(status)
endef
export PIP_WITH_PROGRESS

.DEFAULT_GOAL := help
.PHONY: help serve test test-long check proto wheel constraints clean clean-all

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

serve: $(VENV)/.installed-serve ## Install missing packages, build the demo and serve it
	@exec $(BIN)/loragate serve --demo

test: $(VENV)/.installed-dev ## Run the tests; ARGS="-k name" selects some
	@OMP_NUM_THREADS=1 exec $(BIN)/python -m pytest -m "not long" -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: $(VENV)/.installed-dev ## Run the tests that take minutes each
	@exec $(BIN)/python -m pytest -m long $(ARGS)

check: $(VENV)/.installed-dev ## Check formatting, lint, types and layers
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

proto: $(PROTO_VENV)/.installed ## Regenerate the stubs from proto/*.proto
	@cd proto && ../$(PROTO_VENV)/bin/python -m grpc_tools.protoc -I . \
		--python_out=. --pyi_out=. --grpc_python_out=. loragate/v1/*.proto

wheel: $(VENV)/.installed-dev ## Build dist/*.whl
	@rm -rf build/lib build/bdist.*
	@$(BIN)/python -m build --wheel --no-isolation

constraints: ## Update constraints.txt to the newest compatible versions
	@rm -rf build/constraints && mkdir -p build && $(PYTHON) -m venv build/constraints
	@echo "==> resolving the newest versions"
	@build/constraints/bin/python -c "$$PIP_WITH_PROGRESS" 'setuptools>=77'
	@build/constraints/bin/python -c "$$PIP_WITH_PROGRESS" --no-build-isolation -e '.[dev]'
	@sed -n '/^#/p' constraints.txt > build/constraints.txt
	@build/constraints/bin/python -m pip freeze --all --exclude-editable --exclude pip \
		| sed 's/+cpu$$//' >> build/constraints.txt
	@mv build/constraints.txt constraints.txt && rm -rf build/constraints

clean: ## Remove the output of builds and checks
	@rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

clean-all: clean ## Also remove the virtual environments (keeps the data in .loragate)
	@rm -rf $(VENV) $(PROTO_VENV)

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is required but was not found"; exit 1; }
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.installed-serve: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing the packages for serving (about 1 GB and a few minutes the first time)"
	@$(BIN)/python -c "$$PIP_WITH_PROGRESS" -c constraints.txt setuptools
	@$(BIN)/python -c "$$PIP_WITH_PROGRESS" -c constraints.txt --no-build-isolation -e '.[engine,gateway,tracing,demo,finetune,panel]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing the packages for serving, testing and checking (about 2 GB and a few minutes the first time)"
	@$(BIN)/python -c "$$PIP_WITH_PROGRESS" -c constraints.txt setuptools
	@$(BIN)/python -c "$$PIP_WITH_PROGRESS" -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@ $(VENV)/.installed-serve

$(PROTO_VENV)/.installed:
	@echo "==> creating $(PROTO_VENV) for protoc"
	@$(PYTHON) -m venv $(PROTO_VENV)
	@$(PROTO_VENV)/bin/python -c "$$PIP_WITH_PROGRESS" grpcio-tools==1.62.3 'setuptools<81'
	@touch $@
