"""The errors qc raises for its users: one sentence that names the culprit and how to mend it.

Every class carries the exit code of the command line, so that a script can tell bad input from a bad
pipeline. A Python traceback never reaches a user for these.

====  ==================================================================
code  meaning
====  ==================================================================
0     success
1     ``diff`` found a difference, which is no error
2     usage: a wrong option, pass, pipeline or configuration
3     the model cannot be read, is invalid, or is not supported
4     the data does not fit the model (names, dtypes, shapes, NaN, empty)
5     the result breaks a demand (``--fail-if-unquantized`` and the like)
6     qc itself is at fault: a pass left the model in a broken state
====  ==================================================================
"""

from collections.abc import Sequence


class QcError(RuntimeError):
    """Base of all errors that are meant to be read by a user."""

    exit_code = 2


class UsageError(QcError):
    """A pass, option, pipeline, target or configuration that does not exist or does not fit."""

    exit_code = 2


class ModelError(QcError):
    """A model that cannot be read, fails the ONNX checker, or holds something qc cannot handle."""

    exit_code = 3


class QuantizedError(ModelError):
    """A model that is quantized already, where a float one is wanted.

    Attributes:
        found: how it is quantized, in words.
    """

    def __init__(self, sentence: str, found: str = "") -> None:
        super().__init__(sentence)
        self.found = found


class DataError(QcError):
    """Calibration or evaluation data that does not fit the model."""

    exit_code = 4


class DemandError(QcError):
    """A result that is valid but breaks a demand of the caller."""

    exit_code = 5


class VerificationError(QcError):
    """A pass broke an invariant of the IR. This is a defect of the pass, never of the user."""

    exit_code = 6


def nearest(word: str, choices: "list[str]", cutoff: float = 0.5) -> str:
    """Returns `` (did you mean 'x'?)`` for the most similar choice, or an empty string.

    Among very many choices one is always somewhat alike: a higher cutoff leaves it out.
    """
    from difflib import get_close_matches

    # A prefix or a dash-separated part of a name counts as a match: --out of --output, htp of qnn-htp.
    parted = [choice for choice in choices if choice.startswith(word) or word in choice.split("-")]
    close = get_close_matches(word, parted, n=1, cutoff=0.0) if len(word.strip("-")) > 1 else []
    # A short word with another beginning is another word: gpu and npu.
    alike = get_close_matches(word, choices, n=1, cutoff=cutoff)
    close = close or [choice for choice in alike if len(word) > 3 or choice[:1] == word[:1]]
    if not close:
        return ""
    return f" (did you mean '{close[0]}'?)"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``: the first names, ``most`` at most, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def reason_of(error: Exception) -> str:
    """What an error says in one line; one of the operating system without its number and the file."""
    return " ".join((getattr(error, "strerror", None) or str(error)).split())


def a_type(value: object) -> str:
    """The type of a value with its article, such as ``an 'int'``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} '{name}'"
