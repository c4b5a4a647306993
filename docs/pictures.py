"""Pictures of the report and the viewer at three sizes of models, light and dark, on a desk and on a phone.

    python docs/pictures.py    writes report-N.png and view-N.png into docs/images, N ops

Needs chromium and pillow. Each picture holds four: 1,600 pixels wide and 400, light on the left of dark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from PIL import Image

import qc
from qc.report import find, report_page

IMAGES = Path(__file__).parent / "images"
LAYERS = {30: 1, 500: 23, 5000: 238}  # by the number of ops, about
WIDTH, TOKENS = 64, 32
SCREENS = ((1600, 1000), (400, 800))
COLOURS = 200


def transformer(layers: int) -> onnx.ModelProto:
    """A stack of attention and feed-forward layers, with names such as an exporter gives them."""
    random = np.random.default_rng(0)
    nodes, constants = [], []

    def weight(name: str, *shape: int) -> str:
        array = random.normal(0, WIDTH**-0.5, shape).astype(np.float32)
        constants.append(numpy_helper.from_array(array, name))
        return name

    def op(scope: str, op_type: str, *inputs: str, **attributes: object) -> str:
        name = f"{scope}/{op_type}_{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [f"{name}_output"], name, **attributes))
        return f"{name}_output"

    def linear(scope: str, x: str, rows: int, columns: int) -> str:
        product = op(scope, "MatMul", x, weight(f"{scope}.weight", rows, columns))
        return op(scope, "Add", product, weight(f"{scope}.bias", columns))

    def norm(scope: str, x: str) -> str:
        constants.append(numpy_helper.from_array(np.ones(WIDTH, np.float32), f"{scope}.weight"))
        return op(scope, "LayerNormalization", x, f"{scope}.weight")

    x = linear("/embed", "x", WIDTH, WIDTH)
    for layer in range(layers):
        scope = f"/layers.{layer}"
        y = norm(f"{scope}/attention/norm", x)
        q, k, v = (linear(f"{scope}/attention/{name}", y, WIDTH, WIDTH) for name in "qkv")
        scores = op(
            f"{scope}/attention", "MatMul", q, op(f"{scope}/attention", "Transpose", k, perm=[0, 2, 1])
        )
        mixed = op(f"{scope}/attention", "MatMul", op(f"{scope}/attention", "Softmax", scores), v)
        x = op(scope, "Add", x, linear(f"{scope}/attention/out", mixed, WIDTH, WIDTH))
        hidden = op(
            f"{scope}/mlp", "Relu", linear(f"{scope}/mlp/up", norm(f"{scope}/mlp/norm", x), WIDTH, 4 * WIDTH)
        )
        x = op(scope, "Add", x, linear(f"{scope}/mlp/down", hidden, 4 * WIDTH, WIDTH))
    last = linear("/head", norm("/norm", x), WIDTH, 4)
    shape = ["batch", TOKENS, WIDTH]
    graph = helper.make_graph(
        nodes,
        "transformer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, [*shape[:2], 4])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def taken(page: Path, width: int, height: int, dark: bool) -> Image.Image:
    """A screenshot; a frame gives it the width, as windows of a browser have a least one."""
    frame = page.with_name("frame.html")
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.name}" width="{width}" height="{height}" frameborder="0">'
    )
    picture = page.with_suffix(".png")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chromium is not here, which takes the pictures")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    size = f"--window-size={max(width, 600)},{height}"
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size, scheme]
    more = ["--virtual-time-budget=8000", "--allow-file-access-from-files", f"--screenshot={picture}"]
    subprocess.run([*command, *more, frame.as_uri()], check=True, capture_output=True)
    return Image.open(picture).convert("RGB").crop((0, 0, width, height))


def sheet(page: Path) -> Image.Image:
    """The four pictures of a page; wide ones at half their size."""
    rows = []
    for width, height in SCREENS:
        both = Image.new("RGB", (2 * width + 20, height), "white")
        for column, dark in enumerate((False, True)):
            both.paste(taken(page, width, height, dark), (column * (width + 20), 0))
        scale = 2 if width > 1000 else 1
        rows.append(both.resize((both.width // scale, both.height // scale), Image.Resampling.LANCZOS))
    whole = Image.new("RGB", (max(row.width for row in rows), sum(row.height for row in rows) + 20), "white")
    whole.paste(rows[0], (0, 0))
    whole.paste(rows[1], (0, rows[0].height + 20))
    return whole.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)


def main() -> None:
    """Writes all pictures."""
    random = np.random.default_rng(1)
    feeds = [{"x": random.normal(0, 1, (1, TOKENS, WIDTH)).astype(np.float32)} for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        for ops, layers in LAYERS.items():
            compiled = qc.compile(transformer(layers), "w8a8", data=feeds)
            title = f"transformer of {len(compiled.float_model.graph.node):,} ops"
            view, report = (Path(folder) / f"{name}-{ops}.html" for name in ("view", "report"))
            view.write_text(qc.view.html_page(compiled.ir, title), encoding="utf-8")
            report.write_text(
                report_page(find(compiled, feeds), title, "qc report model.onnx"), encoding="utf-8"
            )
            for page in (view, report):
                sheet(page).save(IMAGES / f"{page.stem}.png", optimize=True)
                print(f"wrote {IMAGES / page.stem}.png")


if __name__ == "__main__":
    main()
