"""The quantizers of a model by tensor, whether they are on or off, as scripts ask for and set them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any, Self

import numpy as np
from onnx import NodeProto

from qc.ir.errors import nearest
from qc.ir.model import Model
from qc.passes.quantize.quantsim.config import Defaults, Kernel, OpTypeRule

from ...missing import PartlyProvided
from ..defs import QuantizationDataType, qtype
from ..errors import ArgumentError
from ..meta.connectedgraph import ConnectedGraph
from ..meta.operations import Op
from ..qc_quantize_op import QcQuantizeOp
from .placement import Placement

Feed = Mapping[str, np.ndarray]
OpQuantizers = tuple[list[QcQuantizeOp], list[QcQuantizeOp], dict[str, QcQuantizeOp]]


class QuantizedModel(PartlyProvided, ABC):
    """A model with what ``configure-quantizers`` placed in it.

    Args:
        ir: the model.
        placement: the quantizers of its tensors.
    """

    def __init__(self, ir: Model, placement: Placement) -> None:
        self._ir = ir
        self._placement = placement
        self._graph: ConnectedGraph | None = None
        self._feeds: list[Feed] | None = None  # what the session was fed inside of compute_encodings

    @abstractmethod
    def _calibrate(self, feeds: Iterable[Feed]) -> None:
        """Finds the numbers of all quantizers that are not frozen."""

    @property
    def qc_quantize_op_dict(self) -> MutableMapping[str, QcQuantizeOp]:
        """The quantizers by tensor, on or off. To set one shares it, to delete one turns it off."""
        return _Quantizers(self)

    @qc_quantize_op_dict.setter
    def qc_quantize_op_dict(self, quantizers: Mapping[str, QcQuantizeOp]) -> None:
        for name in [name for name in self._placement.ops if name not in quantizers]:
            self._turn_off(name)
        self.set_quantizers(quantizers)

    def _turn_off(self, name: str) -> None:
        """Turns the quantizer of one tensor off, and not that of others which share it."""
        self.untie(name)
        self._known(name).enabled = False

    def get_qc_quantize_op(self) -> MutableMapping[str, QcQuantizeOp]:
        """The same as ``qc_quantize_op_dict``."""
        return self.qc_quantize_op_dict

    @property
    def param_names(self) -> list[str]:
        """The trained parameters that may have a quantizer."""
        return list(self._placement.parameters)

    @property
    def activation_names(self) -> list[str]:
        """The other tensors that may have a quantizer, constants among them."""
        return list(self._placement.activations)

    def get_all_quantizers(self) -> tuple[list[QcQuantizeOp], list[QcQuantizeOp]]:
        """The quantizers of parameters and those of activations; a tied one is there for each tensor."""
        ops = self._placement.ops
        return [ops[name] for name in self.param_names], [ops[name] for name in self.activation_names]

    def get_op_quantizers(self, op: Op | NodeProto | str) -> OpQuantizers:
        """The quantizers, on or off, of what an op reads, of what it makes, and of its parameters by kind.

        What another op makes is quantized there, and does not count as read.

        Args:
            op: of ``connected_graph``, a node of the model, or its name.

        Raises:
            UsageError: the model has no such op.
        """
        found, ops = op, self._placement.ops
        if not isinstance(found, Op):
            name, known = op if isinstance(op, str) else op.name, self.connected_graph.get_all_ops()
            if name not in known:
                raise ArgumentError(f"the model has no op '{name}'{nearest(name, list(known))}")
            found = known[name]
        read = (one.name for one in found.inputs if one.producer is None and not one.is_parm)
        made = (one.name for one in found.outputs)
        return (
            [ops[tensor] for tensor in read if tensor in ops],
            [ops[tensor] for tensor in made if tensor in ops],
            {kind: ops[product.name] for product, kind in found.parameters.values() if product.name in ops},
        )

    @property
    def connected_graph(self) -> ConnectedGraph:
        """The ops of the model, as the configuration counts them."""
        if self._graph is None:
            self._graph = ConnectedGraph(self._placement.nodes)
        return self._graph

    def get_supported_kernels(self) -> dict[str, list[dict[str, Any]]]:
        """The formats that the device computes with, by the type of op, as the configuration lists them."""
        config = self._placement.config
        rules: dict[str, Defaults | OpTypeRule] = {"defaults": config.defaults, **config.op_type}
        found = {key: [_formats(one) for one in rule.supported_kernels] for key, rule in rules.items()}
        return {key: formats for key, formats in found.items() if formats or key == "defaults"}

    def set_quantizers(self, quantizer_dict: Mapping[str, QcQuantizeOp]) -> None:
        """Gives tensors other quantizers of this simulation, which ties them.

        Raises:
            UsageError: the model has no such tensor, or it cannot be quantized.
            TypeError: what is given is no quantizer.
        """
        for name, quantizer in quantizer_dict.items():
            if not isinstance(quantizer, QcQuantizeOp):
                raise TypeError(f"'{name}' needs a QcQuantizeOp, not {type(quantizer).__name__}")
            known = self._known(name)
            given = known.adopted(quantizer) if quantizer.stands_alone else quantizer
            known.give(self._placement.sites[name], given)
            given.enabled = quantizer.enabled
            self._placement.ops[name] = given

    def untie(self, name: str) -> None:
        """Gives a tensor that shares a quantizer one of its own, of the same settings and without numbers."""
        shared = self._known(name)
        if shared.is_tied:
            own = shared.copy()
            self.set_quantizers({name: own})
            own.enabled = True

    def set_tensor_precision(
        self, names: str | Iterable[str], precision: qtype | str, *, strict: bool = True
    ) -> None:
        """Sets the number format of the quantizers that decide about tensors.

        That is a tensor's own, or, if it only holds the values of another one, that of the other one.

        Raises:
            UsageError: strict, and a tensor does not exist or is not quantized.
        """
        for name in [names] if isinstance(names, str) else names:
            found = self._placement.effective(name)
            if found is not None:
                found.set_precision(precision)
            elif strict:
                self._known(name)
                raise ArgumentError(f"tensor '{name}' is not quantized; enable its quantizer first")

    def _known(self, name: str) -> QcQuantizeOp:
        if name not in self._placement.ops:
            hint = nearest(name, list(self._placement.ops))
            raise ArgumentError(f"no tensor '{name}' of the model can have a quantizer{hint}")
        return self._placement.ops[name]


class _Quantizers(PartlyProvided, MutableMapping[str, QcQuantizeOp]):
    """The quantizers of a simulation by tensor."""

    def __init__(self, simulation: QuantizedModel) -> None:
        self._simulation = simulation

    def __getitem__(self, name: str) -> QcQuantizeOp:
        ops = self._simulation._placement.ops
        if name not in ops:
            raise KeyError(f"no quantizer is named '{name}'{nearest(str(name), list(ops))}")
        return ops[name]

    def __contains__(self, name: object) -> bool:
        return name in self._simulation._placement.ops

    def __setitem__(self, name: str, quantizer: QcQuantizeOp) -> None:
        self._simulation.set_quantizers({name: quantizer})

    def __delitem__(self, name: str) -> None:
        self._simulation._turn_off(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._simulation._placement.ops)

    def __len__(self) -> int:
        return len(self._simulation._placement.ops)

    def __repr__(self) -> str:
        return repr(dict(self))

    def get(self, name: str, default: Any = None) -> Any:
        """The quantizer of a tensor, or ``default``."""
        return self._simulation._placement.ops.get(name, default)

    def copy(self) -> dict[str, QcQuantizeOp]:
        """A dictionary of the same quantizers."""
        return dict(self)

    def __or__(self, other: Mapping[str, QcQuantizeOp]) -> dict[str, QcQuantizeOp]:
        return {**self, **other}

    def __ror__(self, other: Mapping[str, QcQuantizeOp]) -> dict[str, QcQuantizeOp]:
        return {**other, **self}

    def __ior__(self, other: Mapping[str, QcQuantizeOp]) -> Self:
        self.update(other)
        return self


def _formats(kernel: Kernel) -> dict[str, dict[str, Any]]:
    sides = {"activation": kernel.activation, "param": kernel.param}
    return {
        side: {"bitwidth": one.bitwidth, "dtype": QuantizationDataType[one.dtype]}
        for side, one in sides.items()
        if one is not None
    }
