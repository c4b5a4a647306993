"""The functions of a model, written out where they are called."""

from __future__ import annotations

from onnx import ModelProto, inliner

from ..errors import ModelError

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")


def inlined(model: ModelProto) -> ModelProto:
    """The model with the ops of its functions in place of their calls; ``model`` itself may be changed.

    ONNX does the inlining. A function stays that wants another version of the operators than the model.

    Raises:
        ModelError: ONNX cannot inline them.
    """
    try:
        return inliner.inline_local_functions(_with_one_version(model))
    except Exception as error:  # the inliner raises bare exceptions of its C++ library
        reason = " ".join(str(error).split())
        raise ModelError(f"ONNX cannot inline the functions of the model ({reason})") from error


def _with_one_version(model: ModelProto) -> ModelProto:
    """Lets functions ask for the version of their domains that the model asks for.

    What they do is in the model, whatever its version; exporters of JAX name two.
    """
    versions = {opset.domain: opset.version for opset in model.opset_import}
    own = {function.domain for function in model.functions}.difference(_STANDARD)
    for opset in (opset for function in model.functions for opset in function.opset_import):
        if opset.domain in own:
            opset.version = versions.get(opset.domain, opset.version)
    return model
