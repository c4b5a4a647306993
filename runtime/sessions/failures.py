"""ONNX Runtime's error messages as one plain sentence that names the node, operator or constant at fault."""

from __future__ import annotations

import re

from ..native.library import QC_DOMAIN
from .custom_ops import VARIABLE

# The domains whose operators ONNX Runtime has itself, in its version.
_OWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", QC_DOMAIN)
_MEND = f"; load its library with --custom-ops LIBRARY, or name it in {VARIABLE}"
_IN_NODE = r'In Node, \("(?P<node>.*?)", (?P<op>\S+), "(?P<domain>.*?)", .*Error '
_EXPLANATIONS = (
    (r"(?P<cause>qc needs ONNX Runtime .*)", "{cause}"),
    (
        _IN_NODE + r"No Op registered for .* with domain_version of (?P<version>\d+)",
        "no runtime here knows the operator '{op}' of {domain} version {version}, used by {node}{mend}",
    ),
    (
        _IN_NODE + r"No opset import for domain",
        "the model uses the operator '{op}' of {domain} in {node} but imports no version of that domain",
    ),
    (
        r"Fatal error: (?P<domain>.*?):(?P<op>.+)\(-?\d+\) is not a registered function/op",
        "no runtime here knows the operator '{op}' of {domain}{mend}",
    ),
    (
        # The version is that of a model which may have been converted.
        r"Could not find an implementation for (?P<op>\S+)\(\d+\) node with name '(?P<node>.*)'",
        "ONNX Runtime cannot run the operator '{op}' of {node} on the CPU with its types",
    ),
    (
        r"Type Error: Type '(?P<type>.*)' of input parameter \((?P<tensor>.*)\) of operator \((?P<op>.*)\) "
        r"in node \((?P<node>.*)\) is invalid",
        "the operator '{op}' does not take {type}, which is the type of its input '{tensor}' in {node}",
    ),
    (
        r"Node \((?P<node>.*?)\) Op \(If\) \[TypeInferenceError\] Graph attribute inferencing failed: .*"
        r"Node \((?P<inside>.*)\) Op \((?P<op>\S+)\) \[ShapeInferenceError\] (?P<cause>.*)",
        "the shapes of the inputs do not fit a branch of {node}, where the {op} '{inside}' fails: {cause}; "
        "if an input chooses the branch, --fix-input NAME=NUMBER gives it a value and leaves the other out",
    ),
    (
        r"xternal data path validation failed for initializer: (?P<tensor>\S+?)\. ",
        "the constant '{tensor}' lies in a file that is missing from the model's folder (base_dir)",
    ),
    (
        r"Opset (?P<version>\d+) is under development.* domain (?P<domain>\S+) is till opset (?P<newest>\d+)",
        "the model has opset {version} of {domain}, and the newest that ONNX Runtime knows here is {newest}: "
        "export it with that one, or install a newer onnxruntime",
    ),
    (
        r"Unsupported model IR version: (?P<version>\d+), max supported IR version: (?P<newest>\d+)",
        "the model has version {version} of ONNX's format, and the newest that ONNX Runtime knows here is "
        "{newest}: save it with ir_version = {newest}, or install a newer onnxruntime",
    ),
)


def explain_load(message: str) -> str:
    """The sentence for a failure while a session is made; ``message`` is the text of the exception."""
    message = _plain(message)
    for pattern, sentence in _EXPLANATIONS:
        match = re.search(pattern, message)
        if match:
            words = match.groupdict()
            words["mend"] = "" if words.get("domain", "") in _OWN_DOMAINS else _MEND
            words["domain"] = f"domain '{words.get('domain') or 'ai.onnx'}'"
            words["node"] = f"node '{words['node']}'" if words.get("node") else "a node without a name"
            return sentence.format_map(words)
    return f"ONNX Runtime cannot load the model: {message}"


def explain_run(message: str) -> str:
    """The sentence for a failure while a session runs; ``message`` is the text of the exception."""
    message = _plain(message)
    match = re.search(
        r"returned while running (?P<op>\S+) node\. Name:'(?P<node>.*?)' Status Message: (?P<cause>.*)",
        message,
    )
    if match:
        return f"ONNX Runtime failed in {match['op']} node '{match['node']}': {match['cause']}"
    match = re.search(r"Invalid [Oo]utput [Nn]ame: ?(?P<name>.*)", message)
    if match:
        return f"the model has no output '{match['name']}'"
    return f"ONNX Runtime failed to run the model: {message}"


def _plain(message: str) -> str:
    """ONNX Runtime's message on one line, without error codes and the places in its source."""
    message = " ".join(message.split())
    message = re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", message)
    message = re.sub(
        r"/?\S+\.(?:h|cc|cpp|hpp):\d+ (?:[^()]*::[^()]*\([^()]*\) (?:const )?|\w+ )?", "", message
    )
    return message.removeprefix("This is an invalid model. Error: ").strip()
