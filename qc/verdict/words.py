"""What a verdict says: two lines in a summary, and a sentence for each thing that is worse than in float."""

from __future__ import annotations

from qc.checking import Check

from ..rendering.check import integer_share
from ..rendering.terminal import Fact
from ..rendering.words import count, decibels, file_size, milliseconds
from .measure import Accuracy, Verdict

POOR_DECIBELS = 15.0
_POOR_AGREEMENT = 0.9
_SLOWER = 1.05  # times float, and three quarters of the rounds slower at all
_MORE_MEMORY = 1.1
_LARGER = 1.01  # times float; the name of the target that a result holds is no growth to explain
_LEAST_MEMORY = 2_000_000  # bytes by which a peak differs from run to run
_MOST_OF = 0.5  # of the time that is lost
_ADDED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Transpose")


def verdict_facts(verdict: Verdict) -> list[Fact]:
    """The accuracy, and the costs, in a line each."""
    facts: list[Fact] = []
    if verdict.check is not None:
        facts.append(("integer", integer_share(verdict.check)))
    if verdict.accuracy is not None:
        facts.append(("accuracy", _accuracy(verdict.accuracy)))
    costs = _costs(verdict)
    if costs:
        facts.append(("cost", ", ".join(costs)))
    return facts


def verdict_warnings(verdict: Verdict) -> list[str]:
    """Sentences on outputs of which little is left or known, and on inputs that are the cause, if any."""
    found = [f"the result was not compared with the float model: {verdict.not_compared}"]
    found = found if verdict.not_compared else []
    if verdict.accuracy is not None and verdict.accuracy.not_finite == "float model":
        found.append(
            "outputs of the float model are NaN or infinite on the data, which tells nothing of the result"
        )
    poor = _poor(verdict.accuracy)
    return [*found, f"{poor}: {_remedy(verdict)}", *verdict.saturated] if poor else found


def verdict_notes(verdict: Verdict) -> list[str]:
    """A sentence for each other thing that is worse than in float, with the cause and what to do next."""
    saturated = () if _poor(verdict.accuracy) else verdict.saturated
    found = [*saturated, _shortened(verdict), _slower(verdict), _larger(verdict), _hungrier(verdict)]
    return [sentence for sentence in found if sentence]


def _accuracy(found: Accuracy) -> str:
    parts = [f"NaN or infinity in outputs of the {found.not_finite}"] if found.not_finite else []
    if found.sqnr_db is not None:
        parts.append(f"{decibels(found.sqnr_db)} at the worst output")
    if found.agreement is not None:
        parts.append(f"{_share(found.agreement)} agreement ({found.metric.partition('(')[0]})")
    return f"{', '.join(parts) or 'not comparable'}, {compared_on(found)}"


def compared_on(found: Accuracy) -> str:
    """On how many samples outputs are compared, and why not on the others."""
    if not found.left_out:
        return f"on {count(found.samples, 'sample')}"
    compared = found.samples - found.left_out
    if not compared:
        return f"as outputs are empty, or of other lengths than in float, on {count(found.samples, 'sample')}"
    others = "as on the others outputs are empty, or of other lengths than in float"
    return f"on {compared} of {found.samples} samples, {others}"


def _share(agreement: float) -> str:
    """An agreement in percent; none is less than 0, though a cosine may be."""
    return f"{max(agreement, 0.0):.1%}"


def _costs(verdict: Verdict) -> list[str]:
    costs = []
    if verdict.latency is not None:
        costs.append(f"time {verdict.latency.ratio:.2f} x float ({milliseconds(verdict.latency.seconds)})")
    if verdict.sizes is not None:
        before, after = verdict.sizes
        costs.append(f"size {after / before:.2f} x ({file_size(after)})")
    if verdict.memory is not None:
        before, after = verdict.memory
        costs.append(f"peak memory {after / before:.2f} x ({file_size(after)})")
    if verdict.unmeasured:
        costs.append(f"{verdict.unmeasured}: see 'qc bench'")
    return costs


def _poor(accuracy: Accuracy | None) -> str:
    if accuracy is None:
        return ""
    poor = accuracy.sqnr_db is not None and accuracy.sqnr_db < POOR_DECIBELS
    if accuracy.not_finite == "result":
        return "outputs are NaN or infinite where those of the float model are numbers"
    if poor:
        said = f"outputs have {accuracy.sqnr_db:.1f} dB beside the float model"
    elif accuracy.agreement is not None and accuracy.agreement < _POOR_AGREEMENT:
        said = f"outputs agree with the float model to {_share(accuracy.agreement)} only"
    else:
        return ""
    return f"{said}, which may be too little"


def _remedy(verdict: Verdict) -> str:
    """What to do about a poor result; where there are activations of 16 bits, these come first."""
    if verdict.random:
        return f"{verdict.random} makes other numbers in every run, in float as well, so no two runs agree"
    if verdict.unsaturated:
        return f"sums of products saturate on this processor, which '--target {verdict.unsaturated}' is for"
    wider_on = verdict.wider_on
    wide = f"'--pipeline w8a16' gives activations the 16 bits that {wider_on} runs, " if wider_on else ""
    return (
        f"{wide}'qc auto' looks for a recipe that keeps the accuracy, and 'qc eval --layers' shows where it "
        "is lost"
    )


def _shortened(verdict: Verdict) -> str:
    found = verdict.shortened
    if found is None or not found.is_worse:
        return ""
    (length, shorter), (whole, beginning) = found.lengths, found.sqnr_db
    return (
        f"all sequences of the data have length {length}, and at length {shorter} outputs have "
        f"{beginning:.1f} dB beside float instead of {whole:.1f} dB: give data of all lengths that are in use"
    )


def _slower(verdict: Verdict) -> str:
    latency = verdict.latency
    if latency is None or latency.ratio < _SLOWER or latency.ratio_quartiles[0] < 1:
        return ""
    low, high = latency.ratio_quartiles
    if high - low > latency.ratio - 1:  # rounds differ by more than what is lost
        return ""
    why = (
        f": {cause_of_time(verdict.check, latency.ratio)}" if verdict.check and verdict.check.seconds else ""
    )
    return (
        f"the result takes {latency.ratio:.2f} times as long as float on this machine{why}; 'qc auto "
        "--objective latency' looks for what is quick, 'qc check' lists the time of every op"
    )


def _larger(verdict: Verdict) -> str:
    if verdict.sizes is None or verdict.sizes[1] < _LARGER * verdict.sizes[0]:
        return ""
    before, after = verdict.sizes
    return (
        f"the result is larger than the float model, {file_size(after)} beside {file_size(before)}: "
        f"{verdict.growth}; 'qc diff' lists what was added"
    )


def _hungrier(verdict: Verdict) -> str:
    if verdict.memory is None or verdict.memory[1] < _MORE_MEMORY * verdict.memory[0]:
        return ""
    before, after = verdict.memory
    if after - before < _LEAST_MEMORY:
        return ""
    return (
        f"running the result takes a peak of {file_size(after)} of memory, and float {file_size(before)}: "
        "where float and integer ops meet, both forms of a tensor or weight are held; 'qc check' lists "
        "what stays float, and 'qc bench' measures again"
    )


def cause_of_time(check: Check, ratio: float) -> str:
    """Why a result takes ``ratio`` times as long as float: what was added, else its integer kernels.

    What was added are conversions, and other nodes that only the runtime's form of integer ops needs.
    """
    own = {op.op_type for op in check.ops}
    added = [(kind, seconds) for kind, seconds in check.rest if kind in _ADDED and kind not in own]
    share = sum(seconds for _, seconds in added) / check.seconds
    if share >= _MOST_OF * (1 - 1 / ratio):
        return f"{share:.0%} of it is for {_types(added)} around integer ops, which float has not"
    integer = {op.runs_as: (op.kernel, op.seconds) for op in check.counted if op.runs == "integer"}
    times = [*integer.values()]
    if not times:
        return "no op runs in integers"
    share = sum(seconds for _, seconds in times) / check.seconds
    slower = "which are slower here than those of float"
    return f"{share:.0%} of it is in integer kernels ({_longest(times)}), {slower}"


def _types(times: list[tuple[str, float]]) -> str:
    return " and ".join(dict.fromkeys(kind for kind, _ in times))


def _longest(times: list[tuple[str, float]]) -> str:
    """The kernel that takes most of some times."""
    totals: dict[str, float] = {}
    for kernel, seconds in times:
        totals[kernel] = totals.get(kernel, 0.0) + seconds
    return max(totals, key=lambda kernel: totals[kernel])
