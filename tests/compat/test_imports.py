"""AIMET's names: ``aimet_onnx`` and ``aimet_common`` as the layer, with every path of 2.42."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qc
import qc.compat.aimet_onnx as layer
from qc.compat.aimet_onnx import imports
from qc.compat.missing import MissingAttributesError, NotProvidedError


@pytest.fixture
def installed() -> None:
    layer.install()


@pytest.mark.usefixtures("installed")
def test_modules_are_those_of_the_layer() -> None:
    from aimet_common.defs import QuantScheme
    from aimet_onnx import quantsim
    from aimet_onnx.common.defs import QuantScheme as again

    assert importlib.import_module("aimet_onnx") is layer
    assert quantsim is importlib.import_module("qc.compat.aimet_onnx.quantsim")
    assert quantsim.__spec__.name == "qc.compat.aimet_onnx.quantsim"
    assert QuantScheme is again is layer.QuantScheme


@pytest.mark.usefixtures("installed")
def test_names_are_found_where_scripts_take_them_from() -> None:
    from aimet_common.connected_graph.connectedgraph import Product
    from aimet_common.connected_graph.operation import Product as of_operation
    from aimet_common.connected_graph.product import Product as of_product
    from aimet_common.defs import QTYPE_ALIASES, ActivationType, QuantDtypeBwInfo, QuantizationDataType
    from aimet_common.utils import compute_psnr
    from aimet_onnx.qc_quantize_op import libpymo
    from aimet_onnx.quantsim import OpMode, logger, to_array
    from aimet_onnx.quantsim import Product as of_quantsim

    assert Product is of_operation is of_product is of_quantsim
    assert libpymo.TensorQuantizerOpMode is OpMode
    assert logger.name == "aimet_onnx.quantsim" and callable(to_array)
    assert str(QTYPE_ALIASES["float32"]) == "float32" and ActivationType.relu6.value == 2
    assert QuantDtypeBwInfo(QuantizationDataType.int, 8).is_same_activation(QuantizationDataType.int, 8)
    with pytest.raises(ValueError, match="there are no floats of 8 bits"):
        QuantDtypeBwInfo(QuantizationDataType.float, 8)
    assert compute_psnr(np.arange(4.0), np.arange(4.0)) == 100


def test_schemes_of_training_are_what_they_begin_with() -> None:
    scheme = layer.QuantScheme
    assert scheme.training_range_learning_with_tf_init is scheme.min_max
    assert scheme.training_range_learning_with_tf_enhanced_init is scheme.post_training_tf_enhanced
    with pytest.raises(ValueError, match="ranges are not learned here; use min_max"):
        scheme.from_str(scheme.training_range_learning)


def names() -> list[tuple[str, str]]:
    return [(module, name) for module in imports.modules() for name in sorted(imports.names_of(module))]


def test_every_public_name_is_there_or_a_sentence() -> None:
    assert len(names()) > 457
    provided, bare = 0, []
    for module, name in names():
        try:
            found = importlib.import_module(f"qc.compat.aimet_onnx.{module}")
            provided += getattr(found, name) is not None
        except (MissingAttributesError, NotProvidedError) as error:
            if "is not part of qc's compatibility layer; " not in str(error):
                bare.append((module, name))
    assert bare == []  # each says what to use instead
    assert provided > 80


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "statement, sentence",
    [
        (
            "from aimet_onnx.auto_quant import AutoQuant",
            "auto_quant' is not part of .*; use qc auto",
        ),
        ("import aimet_onnx.adascale", "'aimet_onnx.adascale' is not part of .*; train elsewhere"),
        ("from aimet_onnx.experimental.lora import load_adapter", "'aimet_onnx.experimental' is not part of"),
        ("from aimet_onnx.spinquant.spinquant import apply_spinquant", "; rotate elsewhere"),
        ("from aimet_onnx.utils import get_torch_device", "utils.get_torch_device' is not part of .*; onnx"),
        ("from aimet_common.winnow.mask import Mask", "'aimet_onnx.common.winnow' .*; qc quantizes"),
        ("from qc.compat.aimet_onnx import spinquant", "'aimet_onnx.spinquant' is not part of"),
    ],
)
def test_what_is_not_there_is_a_sentence_on_every_path(statement: str, sentence: str) -> None:
    with pytest.raises(ImportError, match=sentence) as caught:
        exec(statement)
    assert isinstance(caught.value, qc.UsageError)


@pytest.mark.parametrize(
    "module, name",
    [
        ("aimet_onnx", "llm_topology"),  # a module
        ("aimet_onnx.utils", "get_torch_device"),
        ("aimet_onnx.quantsim", "nothing"),  # of which AIMET knows nothing either
        ("onnxruntime", "create_calibrator"),
    ],
)
def test_scripts_can_ask_whether_a_name_is_there(module: str, name: str) -> None:
    there = importlib.import_module(f"qc.compat.{module}")
    assert not hasattr(there, name)
    assert getattr(there, name, None) is None
    with pytest.raises(AttributeError, match=name):
        getattr(there, name)


def test_an_attribute_that_is_missing_says_what_to_use_instead() -> None:
    there, name = importlib.import_module("qc.compat.aimet_onnx.utils"), "get_torch_device"
    with pytest.raises(AttributeError, match=r"utils\.get_torch_device' is not part of .*; onnx") as caught:
        getattr(there, name)
    assert isinstance(caught.value, qc.UsageError)


@pytest.mark.usefixtures("installed")
def test_every_module_lies_in_a_file() -> None:
    for module in ("aimet_onnx.quantsim", "aimet_common.libquant_info"):
        assert Path(importlib.import_module(module).__file__ or "").is_file()


@pytest.mark.usefixtures("installed")
def test_what_aimet_does_not_have_either_is_missing_as_usual() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'aimet_onnx\.nothing'"):
        importlib.import_module("aimet_onnx.nothing")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'aimet_onnx\.feeds'"):
        importlib.import_module("aimet_onnx.feeds")  # a file of the layer, and no module of AIMET
    assert not hasattr(layer, "nothing") and not hasattr(layer.quantsim, "nothing")
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from aimet_onnx.quantsim import nothing")


def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom aimet_onnx import QuantizationSimModel\nfrom beside import NAME\n"
        "print(QuantizationSimModel.__module__, NAME, sys.argv[1:], __name__)\n"
    )
    command = [sys.executable, "-m", "qc.compat.aimet_onnx", str(script), "--option"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["qc.compat.aimet_onnx.quantsim", "beside", "['--option']", "__main__"]


def test_processes_of_a_script_know_the_names(tmp_path: Path) -> None:
    """Those that are started anew import the script, as multiprocessing does elsewhere."""
    (tmp_path / "script.py").write_text(
        "import multiprocessing, os\nfrom aimet_onnx import QuantizationSimModel\n"
        "def name(_): return QuantizationSimModel.__module__\n"
        "if __name__ == '__main__':\n"
        "    os.chdir('..')\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(__file__, *pool.map(name, [0]))\n"
    )
    command = [sys.executable, "-m", "qc.compat.aimet_onnx", "script.py"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, timeout=100)
    assert result.stdout.split() == [str(tmp_path / "script.py"), "qc.compat.aimet_onnx.quantsim"]


@pytest.mark.parametrize("script", ["missing.py", "."])
def test_a_script_that_is_not_there_is_told_of(script: str) -> None:
    command = [sys.executable, "-m", "qc.compat.aimet_onnx", script]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (1, f"there is no script '{script}'\n")


def test_aimet_itself_stays_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aimet_onnx", type(sys)("aimet_onnx"))
    with pytest.raises(ImportError, match=r"'aimet_onnx' is imported already; call install\(\) before"):
        layer.install()
