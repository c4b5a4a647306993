"""Finds which op and tensor of one graph is which of another.

The evidence, from the strongest to the weakest: names, if they mean anything; being the only neighbour of its
kind of what is paired already, walking from the inputs and from the outputs; surroundings that are equal some
steps far. Every phase looks at each op and connection a bounded number of times, so that the time grows with
the size of the graphs.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest

from qc.ir.graph import Op, Value

from .contents import Contents, is_stored, kind
from .labels import Labels, Side, grouped, labels_by_radius
from .wiring import GraphWiring, Read, User

_KEPT = 0.7  # share of the common names that must stand for ops of one kind
_RADIUS = 3


class Alignment:
    """The pairs that were found, of all graphs of two models.

    Attributes:
        ops, values: the partner in the second model by op or value of the first.
        ops_back, values_back: the other way round.
    """

    def __init__(self) -> None:
        self.ops: dict[Op, Op] = {}
        self.ops_back: dict[Op, Op] = {}
        self.values: dict[Value, Value] = {}
        self.values_back: dict[Value, Value] = {}

    def pair_values(self, a: Value, b: Value) -> None:
        """Pairs two tensors; one that has a partner keeps it."""
        if a not in self.values and b not in self.values_back:
            self.values[a], self.values_back[b] = b, a


class _Trust(enum.Enum):
    """What two neighbours of paired ops must have in common besides their kind."""

    NAME = "the name"
    CONTENT = "attributes and constants"
    KIND = "nothing"


def are_names_kept(a: Iterable[GraphWiring], b: Iterable[GraphWiring]) -> bool:
    """Whether the names that two models have in common mostly stand for ops of one kind.

    An exporter that numbers tensors gives the names of one model to other ops of the next as soon as there is
    one op more. Then names mean nothing.
    """
    results_a = {scope.result_name(op): op for scope in a for op in scope.ops}
    results_b = {scope.result_name(op): op for scope in b for op in scope.ops}
    named = _by_unique_name(results_b.values())
    same = {
        named[op.name]: None for op in results_a.values() if op.name in named and _alike(op, named[op.name])
    }
    kept, lost = len(same), 0
    for name, op in results_a.items():
        other = results_b.get(name)
        if (
            other is not None and other not in same
        ):  # an op that kept its own name may take over that of a result
            kept, lost = kept + _alike(op, other), lost + (not _alike(op, other))
    return kept >= _KEPT * (kept + lost)


def align(
    a: GraphWiring,
    b: GraphWiring,
    by_position: bool,
    names_kept: bool,
    alignment: Alignment,
    contents: Contents,
) -> None:
    """Pairs the ops and values of two graphs; those of enclosing graphs must be paired before.

    Args:
        by_position: inputs and outputs correspond by position, as in subgraphs and functions, not by name.
        names_kept: whether names mean anything.
        alignment: takes the pairs.
        contents: compares ops and constants.
    """
    for value_a, value_b in corresponding(a.graph.inputs, b.graph.inputs, by_position):
        if value_a is not None and value_b is not None:
            alignment.pair_values(value_a, value_b)
    outputs = [
        (a.outputs[value_a], b.outputs[value_b])
        for value_a, value_b in corresponding(a.graph.outputs, b.graph.outputs, by_position)
        if value_a is not None and value_b is not None
    ]
    _Aligner(a, b, outputs, names_kept, alignment, contents).run()


def corresponding(
    a: Sequence[Value | None], b: Sequence[Value | None], by_position: bool
) -> list[tuple[Value | None, Value | None]]:
    """The inputs or outputs of two graphs that correspond; with None for what has no counterpart.

    What no name pairs is paired in order, if there is equally much of it on both sides.
    """
    if by_position:
        return list(zip_longest(a, b))
    named = {value.name: value for value in b if value is not None}
    partners = {value: named.pop(value.name, None) for value in a if value is not None}
    left = [value for value, partner in partners.items() if partner is None]
    if len(left) == len(named):
        partners.update(zip(left, named.values(), strict=True))
        named.clear()
    return [*partners.items(), *((None, value) for value in named.values())]


class _Aligner:
    """The state of aligning two graphs; ``queue`` holds the pairs whose neighbours are still to be seen."""

    def __init__(
        self,
        a: GraphWiring,
        b: GraphWiring,
        outputs: list[tuple[Read, Read]],
        names_kept: bool,
        found: Alignment,
        contents: Contents,
    ) -> None:
        self.a, self.b = a, b
        self.outputs = outputs
        self.names_kept = names_kept
        self.found = found
        self.contents = contents
        self.queue: deque[tuple[Op, Op]] = deque()

    def run(self) -> None:
        """Goes through the phases."""
        if self.names_kept:
            self._pair_by_name()
        for trust in (_Trust.CONTENT, _Trust.KIND):
            self._spread(trust)
            self._pair_by_surroundings(trust)
        if self.names_kept and not self._is_done():
            for op, candidate in self._namesakes():
                self._pair(op, candidate)
        self._pair_what_is_left()
        self._pair_constants()

    def _pair(self, a: Op, b: Op) -> None:
        if self._is_free(a, b):
            self.found.ops[a], self.found.ops_back[b] = b, a
            self.queue.append((a, b))
            for made_a, made_b in zip(self.a.results[a], self.b.results[b], strict=False):
                if made_a is not None and made_b is not None:
                    self.found.pair_values(made_a, made_b)

    def _pair_if(self, a: Op, b: Op, trust: _Trust) -> None:
        """Pairs two ops that have in common what ``trust`` asks for."""
        if self._is_free(a, b) and self._fit(a, b, trust):
            self._pair(a, b)

    def _is_done(self) -> bool:
        return all(op in self.found.ops for op in self.a.ops)

    def _is_free(self, a: Op, b: Op) -> bool:
        return a not in self.found.ops and b not in self.found.ops_back and _alike(a, b)

    # -- names --------------------------------------------------------------------------------------

    def _namesakes(self) -> Iterator[tuple[Op, Op]]:
        """Ops that have one name, or whose first results have."""
        by_result = {self.b.result_name(op): op for op in self.b.ops}
        by_name = _by_unique_name(self.b.ops)
        for op in self.a.ops:
            for candidate in (by_result.get(self.a.result_name(op)), by_name.get(op.name)):
                if candidate is not None:
                    yield op, candidate

    def _pair_by_name(self) -> None:
        """Pairs ops of one name that are the same: first those whose inputs agree, and their neighbours."""
        for op, candidate in self._namesakes():
            if self._is_supported(op, candidate):
                self._pair_if(op, candidate, _Trust.CONTENT)
        self._spread(_Trust.NAME)
        for op, candidate in () if self._is_done() else self._namesakes():
            self._pair_if(op, candidate, _Trust.CONTENT)

    def _is_supported(self, a: Op, b: Op) -> bool:
        """Whether most of the inputs that can be compared have one name or are partners."""
        agree = total = 0
        for read_a, read_b in zip_longest(self.a.reads[a], self.b.reads[b]):
            if is_stored(read_a) != is_stored(read_b):
                continue  # a constant whose codes are stored has another name
            if read_a is not None and read_b is not None:
                same_name = read_a.value.name == read_b.value.name
                agree += same_name or self.found.values.get(read_a.value) is read_b.value
            total += read_a is not None or read_b is not None
        return 2 * agree > total or not total

    def _pair_what_is_left(self) -> None:
        """Pairs ops whose own names and shapes of weights agree, even where names mean little."""
        if self._is_done():
            return
        named = _by_unique_name(self.b.ops)
        for name, op in _by_unique_name(self.a.ops).items():
            candidate = named.get(name)
            if candidate is not None and self._is_free(op, candidate):
                before, after = self.contents.shapes(self.a, op), self.contents.shapes(self.b, candidate)
                if all(one == other for one, other in zip(before, after, strict=False)):
                    self._pair(op, candidate)  # one of them may have a bias more

    # -- neighbours ---------------------------------------------------------------------------------

    def _spread(self, trust: _Trust) -> None:
        """Pairs the neighbours of pairs, then theirs, as long as there are any."""
        if self._is_done():
            return
        self.queue = deque((op, self.found.ops[op]) for op in self.a.ops if op in self.found.ops)
        for result_a, result_b in self.outputs:
            self._pair_producers(result_a, result_b, trust)
        for given in self._given():
            self._pair_users(given, trust)
        while self.queue:
            a, b = self.queue.popleft()
            for read_a, read_b in zip(self.a.reads[a], self.b.reads[b], strict=False):
                self._pair_producers(read_a, read_b, trust)
            for value in self.a.results[a]:
                if value is not None:
                    self._pair_users(value, trust)

    def _given(self) -> Iterable[Value]:
        """The tensors that come from outside; no constants, which may be shared by unrelated ops."""
        given = (value for value in self.a.users if value not in self.a.producer)
        return (value for value in given if self.contents.data(value) is None)

    def _pair_producers(self, read_a: Read | None, read_b: Read | None, trust: _Trust) -> None:
        if read_a is None or read_b is None:
            return
        a, b = self.a.producer.get(read_a.value), self.b.producer.get(read_b.value)
        if a is None or b is None:
            return
        if self.a.results[a].index(read_a.value) == self.b.results[b].index(read_b.value):
            self._pair_if(a, b, trust)

    def _pair_users(self, value: Value, trust: _Trust) -> None:
        partner = self.found.values.get(value)
        if partner is None:
            return
        free_a = [user for user in self.a.users.get(value, ()) if user.op not in self.found.ops]
        if not free_a:
            return
        free_b = [r for r in self.b.users.get(partner, ()) if r.op not in self.found.ops_back]
        for users_a, users_b in grouped(free_a, free_b, _place, _place):
            self._pair_alike([user.op for user in users_a], [user.op for user in users_b], trust)

    def _pair_alike(self, a: list[Op], b: list[Op], trust: _Trust) -> None:
        """Pairs ops of one kind that read the same."""
        if len(a) == len(b) == 1:
            self._pair_if(a[0], b[0], trust)
            return
        for ops_a, ops_b in grouped(a, b, self._key(self.a, trust), self._key(self.b, trust)):
            self._pair_in_order(ops_a, ops_b)

    def _key(self, scope: GraphWiring, trust: _Trust) -> Callable[[Op], Hashable]:
        if trust is _Trust.NAME:
            return scope.result_name
        return partial(self.contents.fingerprint, scope) if trust is _Trust.CONTENT else kind

    def _pair_in_order(self, a: list[Op], b: list[Op]) -> None:
        if len(a) == len(b):
            for op, partner in zip(a, b, strict=True):
                self._pair(op, partner)

    def _fit(self, a: Op, b: Op, trust: _Trust) -> bool:
        if trust is _Trust.NAME:
            return self.a.result_name(a) == self.b.result_name(b) or (a.name != "" and a.name == b.name)
        return trust is _Trust.KIND or self.contents.same(self.a, a, self.b, b, self.names_kept)

    # -- surroundings -------------------------------------------------------------------------------

    def _pair_by_surroundings(self, trust: _Trust) -> None:
        """Pairs ops with equal surroundings: first those that are alone with them, seen from far to near."""
        free_a, free_b, rounds = self._labels(trust)
        for labels_a, labels_b in reversed(rounds):
            for ops_a, ops_b in grouped(free_a, free_b, labels_a.__getitem__, labels_b.__getitem__):
                if len(ops_a) == len(ops_b) == 1:
                    self._pair(ops_a[0], ops_b[0])
        self._spread(trust)
        free_a, free_b, rounds = self._labels(trust)
        for labels_a, labels_b in rounds if trust is _Trust.CONTENT else rounds[1:]:
            left_a = [op for op in free_a if op not in self.found.ops]
            left_b = [op for op in free_b if op not in self.found.ops_back]
            for ops_a, ops_b in grouped(left_a, left_b, labels_a.__getitem__, labels_b.__getitem__):
                self._pair_in_order(ops_a, ops_b)
        self._spread(trust)

    def _labels(self, trust: _Trust) -> tuple[list[Op], list[Op], list[tuple[Labels, Labels]]]:
        """The ops without a partner, and their labels by radius; no labels if one side has no such ops."""
        free_a = [op for op in self.a.ops if op not in self.found.ops]
        free_b = [op for op in self.b.ops if op not in self.found.ops_back]
        if not free_a or not free_b:
            return free_a, free_b, []
        describe = self.contents.fingerprint if trust is _Trust.CONTENT else self.contents.outline
        near = dict.fromkeys((*self.a.users, *self.a.producer))
        anchors = {value: number for number, value in enumerate(near) if value in self.found.values}
        anchors_back = {self.found.values[value]: number for value, number in anchors.items()}
        sides = Side(self.a, free_a, anchors, describe), Side(self.b, free_b, anchors_back, describe)
        return free_a, free_b, labels_by_radius(sides, _RADIUS)

    def _pair_constants(self) -> None:
        """Pairs the constants that paired ops read at the same port, then those of one name."""
        for a in self.a.ops:
            b = self.found.ops.get(a)
            if b is not None:
                for read_a, read_b in zip(self.a.reads[a], self.b.reads[b], strict=False):
                    if read_a is not None and read_b is not None and self._are_constants(read_a, read_b):
                        self.found.pair_values(read_a.value, read_b.value)
        named = {value.name: value for value in self.b.constants} if self.names_kept else {}
        for value in self.a.constants:
            if value.name in named:
                self.found.pair_values(value, named[value.name])

    def _are_constants(self, a: Read, b: Read) -> bool:
        return self.contents.data(a.value) is not None and self.contents.data(b.value) is not None


def _alike(a: Op, b: Op) -> bool:
    return kind(a) == kind(b)


def _by_unique_name(ops: Iterable[Op]) -> dict[str, Op]:
    found: dict[str, Op | None] = {}
    for op in ops:
        found[op.name] = None if op.name in found else op
    return {name: op for name, op in found.items() if name and op is not None}


def _place(user: User) -> tuple[tuple[str, str, str], int | None]:
    return kind(user.op), user.port
