"""Mutations of names, edges, nesting and functions."""

from __future__ import annotations

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper

from .draft import Draft, graphs, mutation, nested, nodes

DEPTHS = (2, 10, 28, 31)  # protobuf cannot write anything deeper


@mutation
def close_a_cycle(draft: Draft) -> None:
    """Lets an early node read what a later one, or itself, makes."""
    graph = draft.graph()
    first = draft.rng.randrange(len(graph.node)) if graph.node else 0
    early, late = draft.one(graph.node[first : first + 1]), draft.one(graph.node[first:])
    early.input[:] = [*early.input[:-1], draft.one(late.output)]


@mutation
def read_nothing(draft: Draft) -> None:
    """Lets a node read a tensor that does not exist."""
    node = draft.node()
    port = draft.one(range(len(node.input)))
    node.input[port] = "nowhere"


@mutation
def rename_an_input(draft: Draft) -> None:
    """Lets a node read another tensor, or one with an odd name."""
    node = draft.node()
    node.input[draft.one(range(len(node.input)))] = draft.name()


@mutation
def rename_an_output(draft: Draft) -> None:
    """Gives a result another name, often one that is taken."""
    node = draft.node()
    node.output[draft.one(range(len(node.output)))] = draft.name()


@mutation
def rename_everywhere(draft: Draft) -> None:
    """Gives a tensor an odd name wherever it occurs, so that the model stays sound."""
    old, new = draft.name(), draft.name()
    for node in nodes(draft.model):
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for graph in graphs(draft.model):
        for item in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            item.name = new if item.name == old else item.name


@mutation
def rename_a_node(draft: Draft) -> None:
    """Gives a node the name of another, or an odd one."""
    draft.node().name = draft.rng.choice([draft.name(), draft.node().name])


@mutation
def rename_a_declaration(draft: Draft) -> None:
    """Renames an input, output or intermediate value where it is declared."""
    draft.info().name = draft.name()


@mutation
def rename_a_constant(draft: Draft) -> None:
    """Renames a tensor."""
    draft.tensor().name = draft.name()


@mutation
def rename_a_graph(draft: Draft) -> None:
    """Renames or unnames a graph."""
    draft.graph().name = draft.name()


@mutation
def drop_a_node(draft: Draft) -> None:
    """Removes a node, whose results are still read."""
    graph = draft.graph()
    del graph.node[draft.one(range(len(graph.node)))]


@mutation
def repeat_a_node(draft: Draft) -> None:
    """Adds a node again, which defines its results twice."""
    graph = draft.graph()
    graph.node.add().CopyFrom(draft.one(graph.node))


@mutation
def shuffle_nodes(draft: Draft) -> None:
    """Takes the nodes out of topological order."""
    graph = draft.graph()
    order = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    draft.rng.shuffle(order)
    del graph.node[:]
    graph.node.extend(order)


@mutation
def change_the_operator(draft: Draft) -> None:
    """Gives a node another operator."""
    others = [
        draft.node().op_type,
        "Nonsense",
        "",
        "If",
        "Loop",
        "Scan",
        "Constant",
        "SequenceMap",
        "Conv",
        "Gemm",
    ]
    draft.node().op_type = draft.rng.choice(others)


@mutation
def change_the_domain(draft: Draft) -> None:
    """Moves a node into a domain that may not be imported."""
    draft.node().domain = draft.rng.choice(
        ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "qc", "nowhere", "my"]
    )


@mutation
def change_the_number_of_inputs(draft: Draft) -> None:
    """Adds or removes inputs."""
    node = draft.node()
    if draft.rng.random() < 0.5:
        node.input.extend([draft.name()] * draft.rng.choice([1, 2, 300]))
    else:
        del node.input[draft.rng.randrange(len(node.input) + 1) :]


@mutation
def change_the_number_of_outputs(draft: Draft) -> None:
    """Adds or removes outputs."""
    node = draft.node()
    if draft.rng.random() < 0.5:
        node.output.extend(f"surplus{index}" for index in range(draft.rng.choice([1, 2, 300])))
    else:
        del node.output[draft.rng.randrange(len(node.output) + 1) :]


@mutation
def leave_an_input_out(draft: Draft) -> None:
    """Makes an input an optional one that is not given."""
    node = draft.node()
    node.input[draft.one(range(len(node.input)))] = ""


@mutation
def repeat_a_declaration(draft: Draft) -> None:
    """Declares an input, output, value or constant twice."""
    graph = draft.graph()
    field = draft.rng.choice([graph.input, graph.output, graph.value_info, graph.initializer])
    field.add().CopyFrom(draft.one(field))


@mutation
def drop_declarations(draft: Draft) -> None:
    """Removes one, or all, of the inputs, outputs or constants of a graph."""
    graph = draft.graph()
    field = draft.rng.choice([graph.input, graph.output, graph.initializer, graph.value_info])
    if draft.rng.random() < 0.3:
        del field[:]
    else:
        del field[draft.one(range(len(field)))]


@mutation
def show_another_value(draft: Draft) -> None:
    """Adds an output without a type, perhaps of nothing."""
    draft.graph().output.add(name=draft.name())


@mutation
def capture_nothing(draft: Draft) -> None:
    """Lets a node of a subgraph read, or a subgraph return, what no enclosing graph has."""
    bodies = [graph for graph in graphs(draft.model) if graph is not draft.model.graph]
    body = draft.one(bodies)
    if draft.rng.random() < 0.5 and body.output:
        draft.one(body.output).name = draft.rng.choice(["nowhere", draft.name()])
    else:
        body.node.append(helper.make_node("Neg", ["nowhere"], [draft.name()]))


@mutation
def nest_deeply(draft: Draft) -> None:
    """Puts an If into an If into an If, and so on."""
    graph = draft.model.graph
    body = GraphProto(name="innermost")
    body.node.add(op_type="Identity", input=[draft.name()], output=["deep"])
    body.output.add(name="deep")
    for depth in range(draft.one(DEPTHS)):
        node = NodeProto(op_type="If", input=["condition"], output=[f"deep{depth}"])
        for key in ("then_branch", "else_branch")[: draft.rng.choice([1, 1, 1, 2]) if depth < 5 else 1]:
            node.attribute.add(name=key, type=AttributeProto.GRAPH).g.CopyFrom(body)
        body = GraphProto(name=f"level{depth}", node=[node])
        body.output.add(name=f"deep{depth}")
    graph.initializer.append(helper.make_tensor("condition", TensorProto.BOOL, [], [True]))
    graph.node.extend(body.node)


@mutation
def nest_types_deeply(draft: Draft) -> None:
    """Declares a sequence of sequences of sequences, and so on."""
    type = draft.info().type
    for _ in range(draft.one(DEPTHS)):
        type.Clear()
        type = type.sequence_type.elem_type
    type.tensor_type.elem_type = TensorProto.FLOAT


@mutation
def move_a_subgraph(draft: Draft) -> None:
    """Replaces a subgraph by another graph, or by an empty one."""
    node = draft.one([node for node in nodes(draft.model) if nested(node)])
    attribute = draft.one([a for a in node.attribute if a.HasField("g")])
    copy = GraphProto()
    if draft.rng.random() < 0.7:
        copy.CopyFrom(draft.graph())
    attribute.g.CopyFrom(copy)


@mutation
def call_in_circles(draft: Draft) -> None:
    """Adds local functions that call themselves or each other, and perhaps a node that calls one."""
    model, count = draft.model, draft.rng.choice([1, 2, 5])
    for index in range(count):
        call = helper.make_node(f"circle{(index + 1) % count}", ["v"], ["s"], domain="circles")
        imports = [helper.make_opsetid("circles", 1), helper.make_opsetid("", 21)]
        model.functions.append(
            helper.make_function("circles", f"circle{index}", ["v"], ["s"], [call], imports)
        )
    model.opset_import.add(domain="circles", version=1)
    if draft.rng.random() < 0.7:
        model.graph.node.append(helper.make_node("circle0", [draft.name()], ["circled"], domain="circles"))


@mutation
def call_a_chain(draft: Draft) -> None:
    """Adds functions each of which calls the next one twice: small to write, endless to expand."""
    model, count = draft.model, draft.rng.choice([5, 18, 64])
    imports = [helper.make_opsetid("chain", 1), helper.make_opsetid("", 21)]
    for index in range(count):
        again = f"link{index + 1}" if index + 1 < count else "Neg"
        domain = "chain" if index + 1 < count else ""
        calls = [helper.make_node(again, [a], [b], domain=domain) for a, b in (("v", "t"), ("t", "s"))]
        model.functions.append(helper.make_function("chain", f"link{index}", ["v"], ["s"], calls, imports))
    model.opset_import.add(domain="chain", version=1)
    model.graph.node.append(helper.make_node("link0", [draft.name()], ["chained"], domain="chain"))


@mutation
def spoil_a_function(draft: Draft) -> None:
    """Renames, repeats or empties a local function, or gives it the name of an operator."""
    function = draft.one(draft.model.functions)
    way = draft.rng.randrange(5)
    if way == 0:
        function.name = draft.rng.choice([draft.node().op_type, draft.name()])
    elif way == 1:
        draft.model.functions.add().CopyFrom(function)
    elif way == 2:
        function.domain = draft.rng.choice(["", "ai.onnx", "nowhere"])
    elif way == 3:
        del draft.one([function.node, function.input, function.output, function.opset_import])[:]
    else:
        draft.one([function.input, function.output]).append(draft.name())


@mutation
def change_the_versions(draft: Draft) -> None:
    """Imports other versions of the operators, or none, or claims another version of the format."""
    model, way = draft.model, draft.rng.randrange(4)
    if way == 0:
        model.ir_version = draft.rng.choice([0, 1, 3, 13, 999, -1, 2**40])
    elif way == 1:
        draft.one(model.opset_import).version = draft.rng.choice(
            [0, 1, 7, 12, 13, 18, 23, 26, 999, -1, 2**40]
        )
    elif way == 2:
        del model.opset_import[:]
    else:
        model.opset_import.add(domain=draft.rng.choice(["", "ai.onnx", "qc"]), version=draft.number())


@mutation
def grow_long(draft: Draft) -> None:
    """Adds a chain of thousands of nodes, or a node that thousands read."""
    graph, count, wide = draft.model.graph, 3000, draft.rng.random() < 0.5
    source = draft.name()
    for index in range(count):
        graph.node.add(op_type="Neg", input=[source], output=[f"long{index}"])
        source = source if wide else f"long{index}"
    graph.output.add(name=f"long{count - 1}")


@mutation
def leave_out_the_graph(draft: Draft) -> None:
    """A model without a graph, or with an empty one."""
    if draft.rng.random() < 0.5:
        draft.model.ClearField("graph")
    else:
        draft.model.graph.CopyFrom(GraphProto())


@mutation
def add_training(draft: Draft) -> None:
    """Fills fields that inference never reads."""
    model = draft.model
    info = model.training_info.add()
    info.algorithm.CopyFrom(draft.graph())
    info.update_binding.add(key=draft.name(), value=draft.name())
    model.metadata_props.add(key=draft.name(), value=draft.name())
    model.graph.quantization_annotation.add(tensor_name=draft.name())
    model.doc_string = draft.name() * 20
