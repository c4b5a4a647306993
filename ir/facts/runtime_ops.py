"""Ops that ONNX Runtime has in ONNX's own domain, where ONNX itself has none of that name."""

from __future__ import annotations

# The first opset in which ONNX defines them; none for one that it never did.
_DEFINED_SINCE = {"LayerNormalization": 17, "SimplifiedLayerNormalization": None}
MAIN_DOMAINS = ("", "ai.onnx")


def is_of_runtime(op_type: str, domain: str, opset: int) -> bool:
    """Whether an op has a meaning for ONNX Runtime alone, although its domain is that of ONNX.

    So are normalizations of models that ONNX Runtime optimized, or that its builder of language models wrote.
    """
    if domain not in MAIN_DOMAINS or op_type not in _DEFINED_SINCE:
        return False
    since = _DEFINED_SINCE[op_type]
    return since is None or opset < since
