"""``ConnectedGraph``: the ops of a model in order, and the products between them, read off the IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import ModelProto, TensorProto
from onnxruntime.quantization.onnx_model import ONNXModel

from qc.ir import lift
from qc.ir.facts.constants import constant_data
from qc.ir.facts.op_table import TABLE
from qc.ir.graph import Value
from qc.ir.onnx.protos import walk_graphs
from qc.passes.quantize.quantsim.nodes import Node, NodeGraph

from ...missing import PartlyProvided
from ..errors import ArgumentError
from ..simulation.model_names import with_names
from .operations import Op, Product

CONSTANT_TYPE = ["Constant", "ConstantOfShape"]
INPUT_INDEX, WEIGHT_INDEX, BIAS_INDEX, RUNNING_MEAN_INDEX, RUNNING_VAR_INDEX = range(5)
OPS_WITH_PARAMS = [op_type for op_type, traits in TABLE.items() if traits.trained]


class ConnectedGraph(PartlyProvided):
    """The ops of a model, those inside of If, Loop and Scan among them.

    Args:
        model: the model, or its graph as the rules of placement see it, where several ops may count as one.

    Attributes:
        model: the model, if that was given.
        ordered_ops: in topological order, those of a body before the op that runs it.
        starting_ops: those that read nothing that another op makes.

    Raises:
        UsageError: an op reads what is neither made nor given.
    """

    def __init__(self, model: ModelProto | ONNXModel | NodeGraph) -> None:
        self.model = model if not isinstance(model, NodeGraph) else None
        self.ordered_ops: list[Op] = []
        self._products: dict[str, Product] = {}
        for graph in _graphs(model):
            self._add(graph)
        self.starting_ops = [op for op in self.ordered_ops if not op.input_ops]

    def get_all_ops(self) -> Mapping[str, Op]:
        """The ops by name."""
        return {op.name: op for op in self.ordered_ops}

    def get_all_products(self) -> Mapping[str, Product]:
        """The products by name."""
        return dict(self._products)

    def get_product(self, name: str) -> Product | None:
        """The product of a name; None if there is none."""
        return self._products.get(name)

    def get_op_from_module_name(self, name: str) -> Op | None:
        """The op of a name; None if there is none."""
        return self.get_all_ops().get(name)

    def take_parameters(self, model: ModelProto) -> None:
        """Gives parameters the numbers that they have in another form of the model."""
        numbers = {tensor.name: tensor for tensor in model.graph.initializer}
        for product in self._products.values():
            if product.is_parm:
                product.tensor = numbers.get(product.name, product.tensor)

    def _add(self, graph: NodeGraph) -> None:
        for value in graph.graph.inputs:
            self._product(value).is_model_input = graph.graph.parent is None
        for node in graph.nodes:
            self.ordered_ops.append(self._op(graph, node))

    def _op(self, graph: NodeGraph, node: Node) -> Op:
        last = node.ops[-1]
        made = [self._product(value) for value in node.made]
        name = last.name or (made[0].name if made and self.model is None else "")
        op = Op(name, node.op_type, node.domain, last.proto)
        op.outputs = made
        for value in filter(None, node.inputs):
            if _is_unknown(value):
                raise ArgumentError(f"op '{op.name}' reads '{value.name}', which no op makes")
            op.inputs.append(self._product(value))
        for product in made:
            product.producer = op
        for product in op.inputs:
            product.consumers.append(op)
        for parameter in graph.parameters(node):
            product = self._product(parameter.value)
            product.is_parm, product.is_const = True, False
            product.tensor = _tensor(parameter.value)
            op.parameters[product.name] = product, parameter.slot
            if parameter.slot == "weight" and node.is_type("MatMul"):
                op.transposed_params = parameter.transposed
        if node.is_type("Gemm"):
            op.transposed_params = bool(node.attribute("transB", 0))
        return op

    def _product(self, value: Value) -> Product:
        if value.name not in self._products:
            data = constant_data(value)
            shape = data.shape if data is not None else value.type.shape
            sizes = [size if isinstance(size, int) else 0 for size in shape] if shape is not None else None
            self._products[value.name] = Product(value.name, sizes, is_const=data is not None)
        return self._products[value.name]


def _is_unknown(value: Value) -> bool:
    """Whether a tensor is neither made nor given."""
    value = value.original
    made = value.producer is not None or value.is_input
    return not made and constant_data(value) is None


def _tensor(value: Value) -> TensorProto | None:
    data = constant_data(value)
    return data.renamed(value.name) if data is not None else None


def _graphs(model: ModelProto | ONNXModel | NodeGraph) -> Iterator[NodeGraph]:
    """The graphs of a model, those inside of others first."""
    if isinstance(model, NodeGraph):
        yield model
        return
    proto = model.model if isinstance(model, ONNXModel) else model
    nodes = (node for graph in walk_graphs(proto.graph) for node in graph.node)
    names = [node.name for node in nodes if node.op_type != "Constant"]
    lifted = lift(proto if len(set(names)) == len(names) else with_names(proto))
    for graph in reversed(list(lifted.graphs())):
        yield NodeGraph(graph)


def get_ordered_ops(starting_ops: list[Op]) -> list[Op]:
    """The given ops and all behind them, each after those that make what it reads."""
    ordered: dict[Op, None] = {}
    reached = _behind(starting_ops)

    def visit(op: Op) -> None:
        if op in reached and op not in ordered:
            for source in op.input_ops:
                visit(source)
            ordered[op] = None

    for op in reached:
        visit(op)
    return list(ordered)


def _behind(ops: list[Op]) -> dict[Op, None]:
    found = dict.fromkeys(ops)
    waiting = list(ops)
    while waiting:
        new = [op for op in waiting.pop().output_ops if op not in found]
        found.update(dict.fromkeys(new))
        waiting += new
    return found


def get_all_input_ops(conn_graph: ConnectedGraph) -> list[Op]:
    """The ops that read an input of the model."""
    return [op for op in conn_graph.ordered_ops if any(product.is_model_input for product in op.inputs)]


def get_all_output_ops(conn_graph: ConnectedGraph) -> list[Op]:
    """The ops whose results no other op reads."""
    return [op for op in conn_graph.ordered_ops if not op.output_ops]


def get_all_ops_with_constant_inputs(conn_graph: ConnectedGraph) -> list[Op]:
    """The ops that read a constant that is no parameter."""
    return [op for op in conn_graph.ordered_ops if any(product.is_const for product in op.inputs)]
