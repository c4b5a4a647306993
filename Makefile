# Everything a newcomer needs. `make demo` shows what qc does; `make test` checks all of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= magika

.PHONY: demo test fuzz lint docs clean

demo: $(VENV)/.demo-$(MODEL)
	$(BIN)/python examples/demo/demo.py --model $(MODEL) --output demo-output

test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses auto
	$(MAKE) lint

# Ten thousand hostile models; make test tries the first thousand. Failures are kept in build/fuzz/failures.
fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m fuzz

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
NATIVE := pyproject.toml CMakeLists.txt $(wildcard runtime/csrc/* runtime/csrc/cuda/*)

$(VENV)/.demo-%:
	@echo "there is no demo of '$*'; choose MODEL=magika or MODEL=ocr" >&2; exit 1

# The package with the voice detector is wanted for its model only; without it one test is skipped.
$(VENV)/.dev: $(VENV)/pyvenv.cfg $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	-$(BIN)/pip install --quiet --disable-pip-version-check --no-deps silero-vad==6.2.3
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
