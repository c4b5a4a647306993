"""Mutations of external data: paths out of the folder, and places that a file does not have."""

from __future__ import annotations

from onnx import TensorProto

from .draft import Draft, mutation

SECRET = "secret.bin"  # the file in the folder outside, large enough for every constant


def locations(draft: Draft) -> list[str]:
    """Paths that lead out of the folder, or to nothing that may be read."""
    outside = draft.outside
    draft.links |= {"link.bin": f"{outside}/{SECRET}", "links": str(outside), "loop.bin": "loop.bin"}
    draft.pipes = ["pipe.bin"]
    draft.files |= {"folder/weights.bin": bytes(8192)}
    return [
        f"{outside}/{SECRET}",
        f"../{outside.name}/{SECRET}",
        f"folder/../../{outside.name}/{SECRET}",
        f"./././../{outside.name}/{SECRET}",
        f"..\\{outside.name}\\{SECRET}",
        f"file://{outside}/{SECRET}",
        f"~/{SECRET}",
        SECRET,  # is in the working folder, not in the model's
        "link.bin",
        f"links/{SECRET}",
        f"folder/../links/{SECRET}",
        "loop.bin",
        "pipe.bin",
        "folder",
        "folder/weights.bin",
        "weights.bin",
        "model.onnx",
        ".",
        "..",
        "",
        "/",
        "weights.bin\0",
        f"weights.bin\0/../../{outside.name}/{SECRET}",
        "n" * 300,
        "n/" * 3000,
        "*/_ORT_MEM_ADDR_/*",
    ]


@mutation
def move_data_out(draft: Draft) -> None:
    """Points a constant, inline until now or external, at a file that it must not read."""
    tensor = draft.tensor()
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    del tensor.external_data[:]
    tensor.external_data.add(key="location", value=draft.one(locations(draft)))
    if draft.rng.random() < 0.5:
        tensor.external_data.add(key="offset", value=str(draft.rng.choice([0, 0, 0, 4, 4096, 140000000000])))
    if draft.rng.random() < 0.3:
        tensor.external_data.add(key="length", value=str(draft.rng.choice([0, 4, 16, draft.number()])))


@mutation
def change_the_place(draft: Draft) -> None:
    """Changes offset, length or another field of external data."""
    tensor = draft.one([t for t in draft.model.graph.initializer if t.external_data])
    entry = draft.one(tensor.external_data)
    way = draft.rng.randrange(4)
    if way == 0:
        entry.value = draft.rng.choice(
            ["", "one", "0x10", "1e3", " 8 ", "-4", "8193", "18446744073709551617", "٣"]
        )
    elif way == 1:
        entry.value = str(draft.number())
    elif way == 2:
        tensor.external_data.add(key=entry.key, value=draft.one(locations(draft)))
    else:
        entry.key = draft.rng.choice(["", "location", "offset", "length", "checksum", "basepath"])


@mutation
def change_the_file(draft: Draft) -> None:
    """Removes, shortens or replaces the file that external data lies in."""
    name = draft.one(sorted(draft.files))
    data = draft.files.pop(name)
    way = draft.rng.randrange(5)
    if way == 0:
        draft.files[name] = data[: draft.rng.randrange(len(data) + 1)]
    elif way == 1:
        draft.links[name] = f"{draft.outside}/{SECRET}"
    elif way == 2:
        draft.pipes.append(f"{name}.pipe")
        draft.links[name] = f"{name}.pipe"
    elif way == 3:
        draft.files[f"{name}/inside"] = data
