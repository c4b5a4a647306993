"""Mutations of types, shapes, attributes and constants."""

from __future__ import annotations

import numpy as np
from onnx import AttributeProto, TensorProto, numpy_helper

from .draft import Draft, NothingToDo, graphs, mutation, nodes

DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)
TYPES = (*range(0, 28), 99, -1, 2**31 - 1)


@mutation
def change_the_type_of_a_value(draft: Draft) -> None:
    """Declares another element type, or something that is no tensor."""
    type = draft.info().type
    way = draft.rng.randrange(6)
    if way < 3:
        type.tensor_type.elem_type = draft.rng.choice(TYPES)
    elif way == 3:
        type.sequence_type.elem_type.tensor_type.elem_type = draft.rng.choice(TYPES)
    elif way == 4:
        type.map_type.key_type = draft.rng.choice(TYPES)
    else:
        draft.rng.choice([type.Clear, type.optional_type.SetInParent, type.sparse_tensor_type.SetInParent])()


@mutation
def change_a_dimension(draft: Draft) -> None:
    """Declares an absurd size."""
    shape = draft.info().type.tensor_type.shape
    if shape.dim and draft.rng.random() < 0.7:
        draft.one(shape.dim).dim_value = draft.number()
    elif draft.rng.random() < 0.5:
        shape.dim.add(dim_value=draft.number())
    else:
        shape.dim.add(dim_param=draft.name())


@mutation
def change_the_rank(draft: Draft) -> None:
    """Declares no axis, no shape, or thousands of axes."""
    tensor = draft.info().type.tensor_type
    del tensor.shape.dim[:]
    way = draft.rng.randrange(3)
    if way == 0:
        tensor.ClearField("shape")
    elif way == 1:
        for _ in range(draft.rng.choice([9, 65, 2000])):
            tensor.shape.dim.add(dim_value=draft.rng.choice([1, 2]))


@mutation
def declare_values(draft: Draft) -> None:
    """Contradicts shape inference with declarations of intermediate values."""
    graph = draft.graph()
    for node in graph.node:
        for name in node.output:
            if draft.rng.random() < 0.5:
                info = graph.value_info.add(name=name)
                info.type.tensor_type.elem_type = draft.rng.choice([1, 1, 1, 7, 9])
                for _ in range(draft.rng.randrange(4)):
                    info.type.tensor_type.shape.dim.add(dim_value=draft.number())


@mutation
def change_an_integer(draft: Draft) -> None:
    """Sets an integer attribute, such as an axis or a group, to an absurd number."""
    attribute = draft.one(
        [a for n in nodes(draft.model) for a in n.attribute if a.type == AttributeProto.INT]
    )
    attribute.i = draft.number()


@mutation
def change_integers(draft: Draft) -> None:
    """Changes one number of a list of integers, or the length of the list."""
    lists = [a for n in nodes(draft.model) for a in n.attribute if a.type == AttributeProto.INTS]
    numbers = draft.one(lists).ints
    way = draft.rng.randrange(4)
    if way == 0:
        del numbers[draft.rng.randrange(len(numbers) + 1) :]
    elif way == 1:
        numbers.extend([draft.number()] * draft.rng.choice([1, 5, 2000]))
    else:
        numbers[draft.one(range(len(numbers)))] = draft.number()


@mutation
def change_the_type_of_an_attribute(draft: Draft) -> None:
    """Claims another type for an attribute, so that its value lies in the wrong field."""
    draft.attribute().type = draft.rng.choice(range(15))


@mutation
def replace_an_attribute(draft: Draft) -> None:
    """Gives an attribute a value of another type."""
    attribute = draft.attribute()
    name = attribute.name
    attribute.Clear()
    attribute.name = name
    way = draft.rng.randrange(6)
    if way == 0:
        attribute.type, attribute.i = AttributeProto.INT, draft.number()
    elif way == 1:
        attribute.type, attribute.f = (
            AttributeProto.FLOAT,
            draft.rng.choice([float("nan"), float("inf"), 0.0]),
        )
    elif way == 2:
        attribute.type, attribute.s = AttributeProto.STRING, b"\xff\xfe\x00"
    elif way == 3:
        attribute.type = AttributeProto.TENSOR
        attribute.t.CopyFrom(draft.tensor())
    elif way == 4:
        attribute.type = AttributeProto.GRAPH
        attribute.g.name = draft.name()
    else:
        attribute.type = draft.rng.choice(
            [AttributeProto.GRAPHS, AttributeProto.TENSORS, AttributeProto.STRINGS]
        )


@mutation
def change_the_name_of_an_attribute(draft: Draft) -> None:
    """Gives an attribute a name that its operator does not know, or that another one has."""
    draft.attribute().name = draft.rng.choice([draft.name(), draft.attribute().name])


@mutation
def drop_an_attribute(draft: Draft) -> None:
    """Removes an attribute, which may be required."""
    node = draft.one([node for node in nodes(draft.model) if node.attribute])
    del node.attribute[draft.one(range(len(node.attribute)))]


@mutation
def refer_to_an_attribute(draft: Draft) -> None:
    """Lets an attribute refer to one of a function, also where there is none."""
    attribute = draft.attribute()
    kind, name = attribute.type, attribute.name
    attribute.Clear()
    attribute.name, attribute.type, attribute.ref_attr_name = (
        name,
        kind,
        draft.rng.choice(["slope", "nowhere", ""]),
    )


@mutation
def change_the_type_of_a_constant(draft: Draft) -> None:
    """Claims another element type, which the data does not fit."""
    draft.tensor().data_type = draft.rng.choice(TYPES)


@mutation
def change_a_size_of_a_constant(draft: Draft) -> None:
    """Claims another size, which the data does not fit."""
    dims = draft.tensor().dims
    way = draft.rng.randrange(4)
    if way == 0:
        del dims[:]
    elif way == 1:
        dims.extend([draft.number()] * draft.rng.choice([1, 2, 70]))
    else:
        dims[draft.one(range(len(dims)))] = draft.number()


@mutation
def reshape_a_constant(draft: Draft) -> None:
    """Gives a constant another shape of as many elements, or a sound one of none or of another number."""
    tensor = draft.tensor()
    array = _array(tensor)
    way = draft.rng.randrange(5)
    if way == 0:
        array = array.reshape(-1)
    elif way == 1:
        array = array.reshape(*[1] * draft.rng.choice([1, 4, 8]), -1)
    elif way == 2:
        array = array.reshape(-1)[: draft.rng.choice([0, 1, 2])]
    elif way == 3:
        array = np.resize(array, [draft.rng.choice([0, 1, 2, 3, 5]) for _ in range(draft.rng.randrange(5))])
    elif array.ndim:
        array = np.swapaxes(array, 0, -1)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


@mutation
def change_the_numbers(draft: Draft) -> None:
    """Makes a constant NaN, infinite, huge, zero or absurd."""
    tensor = draft.tensor()
    array = np.array(_array(tensor))
    if array.dtype.kind not in "iuf" or not array.size:
        return
    place = draft.rng.randrange(array.size) if draft.rng.random() < 0.7 else slice(None)
    if array.dtype.kind == "f":
        array.flat[place] = draft.rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e38, 1e-45, -1.0])
    else:
        limits = np.iinfo(array.dtype)
        array.flat[place] = min(max(draft.number(), limits.min), limits.max)
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _array(tensor: TensorProto) -> np.ndarray:
    """The data of a constant that is sound until now; raises NothingToDo for any other."""
    if tensor.data_location == TensorProto.EXTERNAL:
        raise NothingToDo
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError):
        raise NothingToDo from None


@mutation
def cut_the_data(draft: Draft) -> None:
    """Makes the bytes of a constant too few or too many."""
    tensor = draft.tensor()
    data = tensor.raw_data
    tensor.raw_data = draft.rng.choice([data[: len(data) // 2], data[:-1], data + b"\0" * 7, b""])


@mutation
def put_data_into_another_field(draft: Draft) -> None:
    """Gives a constant data in a field that is not for its type, or in two fields."""
    tensor = draft.tensor()
    if draft.rng.random() < 0.5:
        for field in DATA_FIELDS:
            tensor.ClearField(field)
    field = draft.rng.choice(DATA_FIELDS)
    if field == "raw_data":
        tensor.raw_data = b"12345678"
    elif field == "string_data":
        tensor.string_data.extend([b"a", b"\xff\xfe", b""])
    else:
        getattr(tensor, field).extend([1, 2, 3])


@mutation
def claim_a_segment(draft: Draft) -> None:
    """Says that a constant is only a part."""
    segment = draft.tensor().segment
    segment.begin, segment.end = draft.number(), draft.number()


@mutation
def spoil_a_sparse_constant(draft: Draft) -> None:
    """Changes the size, the indices or the values of a sparse constant."""
    found = [s for g in graphs(draft.model) for s in g.sparse_initializer]
    found += [a.sparse_tensor for n in nodes(draft.model) for a in n.attribute if a.HasField("sparse_tensor")]
    sparse = draft.one(found)
    way = draft.rng.randrange(5)
    if way == 0:
        sparse.dims[:] = [draft.number() for _ in range(draft.rng.randrange(4))]
    elif way == 1:
        sparse.indices.CopyFrom(draft.tensor())
    elif way == 2:
        sparse.values.CopyFrom(draft.tensor())
    elif way == 3:
        numbers = [draft.number() for _ in range(2)]
        sparse.indices.CopyFrom(numpy_helper.from_array(np.asarray(numbers, np.int64)))
    else:
        draft.rng.choice([sparse.indices, sparse.values]).Clear()


@mutation
def make_constants_sparse(draft: Draft) -> None:
    """Turns an initializer into a sparse one that says nearly the same."""
    graph = draft.graph()
    tensor = draft.one(graph.initializer)
    sparse = graph.sparse_initializer.add(dims=tensor.dims)
    sparse.values.CopyFrom(tensor)
    sparse.indices.CopyFrom(numpy_helper.from_array(np.arange(draft.rng.choice([0, 1, 5]), dtype=np.int64)))
    if draft.rng.random() < 0.5:
        graph.initializer.remove(tensor)
