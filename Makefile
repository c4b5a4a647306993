# Everything a newcomer needs. `make demo` shows what qc does; `make test` checks all of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= magika

.PHONY: demo test lint docs clean

demo: $(VENV)/.demo-$(MODEL)
	$(BIN)/python examples/demo/demo.py --model $(MODEL) --output demo-output

test: $(VENV)/.dev
	$(BIN)/python -m pytest
	$(MAKE) lint

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typecheck && mkdir -p build/typecheck/qc
	ln -s $(CURDIR)/qc/* build/typecheck/qc/
	for room in ir patterns passes runtime; do ln -s $(CURDIR)/$$room build/typecheck/qc/$$room; done
	cd build/typecheck && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml -p qc

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

OLD_PYTHON := qc needs Python 3.11 or newer; choose one with: make PYTHON=python3.12

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("$(OLD_PYTHON)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The package is installed again when its build description or its C++ sources change.
NATIVE := pyproject.toml CMakeLists.txt $(wildcard runtime/csrc/*)

$(VENV)/.demo-%:
	@echo "there is no demo of '$*'; choose MODEL=magika or MODEL=ocr" >&2; exit 1

$(VENV)/.dev: $(VENV)/pyvenv.cfg $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.demo-magika: $(VENV)/pyvenv.cfg $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo]'
	touch $@

# The package is wanted for its models only, not for the image libraries that it depends on.
$(VENV)/.demo-ocr: $(VENV)/pyvenv.cfg $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/pip install --quiet --disable-pip-version-check 'pillow>=10.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python \
		rapidocr-onnxruntime==1.4.4
	touch $@

clean:
	rm -rf $(VENV) build demo-output
