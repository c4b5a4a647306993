"""``qc view``: ops folded into modules, by themselves and in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import Page, branches, chain

from qc.diff.wiring import GraphWiring, Wiring
from qc.ir import lift
from qc.ir.graph import Op
from qc.view.folding import folded
from qc.view.modules import Module, ops_of
from qc.view.picture import picture_of

MODEL, DATA = "model.onnx", "calibration.npz"


def test_ops_are_folded_by_the_scopes_in_their_names(qc) -> None:
    names = [f"/net/block.{i // 50}/{'a' if i % 50 < 40 else 'b'}/Neg_{i}" for i in range(250)]
    onnx.save(chain(250, names), "scopes.onnx")
    assert qc("view", "scopes.onnx").code == 0
    page = Page("scopes.html")
    labels = [(scene["label"], scene["ops"]) for scene in page.data["scenes"]]
    assert labels == [("main graph", 250), *((f"block.{i}", 50) for i in range(5))]
    assert page.boxes()[1:3] == [["block.0", "50 ops"], ["block.1", "50 ops"]]
    root, first, *_ = page.data["scenes"]
    assert first["parent"] == root["key"]
    (box,) = (g for g in page.drawings[0].iter("g") if g.get("data-card") == first["key"])
    assert box.get("class") == "box module floating"
    assert page.boxes(2)[0] == ["v50"] and page.boxes(2)[-1] == ["v100"]  # what comes in, and goes out
    assert page.data["facts"][0] == ["ops", "250"]
    drawn = [
        key
        for one in page.drawings
        for g in one.iter("g")
        if (key := g.get("data-card", "")) in page.data["cards"]
    ]
    ops = [key for key in drawn if key.startswith("op-")]
    assert len(ops) == len(set(ops)) == 250


def scope_of(model: onnx.ModelProto) -> GraphWiring:
    """The connections of the main graph."""
    return next(iter(Wiring(lift(model)).scopes.values()))


def fold(model: onnx.ModelProto) -> tuple[Op | Module, ...]:
    scope = scope_of(model)
    return folded(scope, scope.ops)


def test_ops_without_scopes_are_folded_by_their_order() -> None:
    items = fold(chain(450))
    assert items[0].label == "ops 1 to 20 of 450" and items[-1].label.endswith(" to 450 of 450")
    assert 20 <= len(items) <= 25 and {len(item.items) for item in items} <= {19, 20, 21}
    assert len({item.key for item in items}) == len(items)


def test_ops_are_folded_by_the_scopes_that_an_exporter_wrote_down() -> None:
    model = chain(90, [f"node_{i}" for i in range(90)])
    for i, node in enumerate(model.graph.node):
        scopes = ["", "blocks", f"blocks.{i // 30}", f"neg_{i}"]
        node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=str(scopes))
    assert [item.label for item in fold(model)] == ["blocks.0", "blocks.1", "blocks.2"]


def test_blocks_that_repeat_are_modules() -> None:
    model = chain(93)
    for i, node in enumerate(model.graph.node):
        node.op_type = "Cos" if i in (0, 92) else ("Neg", "Exp", "Sin", "Abs")[i % 4]
    items = fold(model)
    blocks = [item for item in items if isinstance(item, Module)]
    assert len({tuple(op.op_type for op in block.ops) for block in blocks}) == 1
    assert [block.label for block in blocks] == [f"block {i + 1}" for i in range(22)]
    assert all(len(block.items) == 4 for block in blocks) and len(items) == 22 + 5


def test_a_module_that_holds_most_ops_is_not_one_box() -> None:
    names = [f"/model/{'a' if i < 40 else 'b'}/Neg_{i}" if i < 80 else f"Neg_{i}" for i in range(85)]
    assert [isinstance(item, Module) for item in fold(chain(85, names))] == [True, True, *[False] * 5]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=60))
def test_folding_keeps_every_op(paths: list[list[str]]) -> None:
    model = chain(len(paths), ["/".join([*path, "Neg"]) for path in paths])
    with patch("qc.view.folding.MOST_BOXES", 5), patch("qc.view.folding._STRETCH", 4):
        items = fold(model)
    assert [int(op.op_type == "Neg") for op in ops_of(items)] == [1] * len(paths)
    assert len({op.id for op in ops_of(items)}) == len(paths)

    def keys(found: Iterable[Op | Module]) -> Iterator[str]:
        for item in found:
            if isinstance(item, Module):
                yield item.key
                yield from keys(item.items)

    assert len(list(keys(items))) == len(set(keys(items)))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=40), st.randoms())
def test_nothing_leads_out_of_a_module_and_back(scopes: list[str], random: Random) -> None:
    """So every line leads down, and a module has references for what comes from outside alone."""
    model = chain(len(scopes), [f"{scope}/Neg_{i}" for i, scope in enumerate(scopes)])
    for i, node in enumerate(model.graph.node):
        node.input[0] = f"v{random.randint(0, i)}"
    scope = scope_of(model)
    with patch("qc.view.folding.MOST_BOXES", 4), patch("qc.view.folding._STRETCH", 2):
        picture = picture_of(scope, "", folded(scope, scope.ops))
    number = {box: place for place, box in enumerate(picture.boxes)}
    assert all(number[line.source] < number[end.box] for line in picture.lines for end in line.ends)
    assert not any(box.kind == "reference" for box in picture.boxes)


@pytest.fixture
def browser(qc) -> Callable[[str, str], str]:
    """Opens a page, runs a script in it, and gives back the document as it is then."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("there is no Chromium on this machine")

    def run(page: str, script: str) -> str:
        text = Path(page).read_text(encoding="utf-8")
        Path("driven.html").write_text(text.replace("</body>", f"<script>{script}</script></body>"), "utf-8")
        options = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1600,1000",
            "--virtual-time-budget=5000",
            "--dump-dom",
        ]
        uri = Path("driven.html").resolve().as_uri()
        return subprocess.run([program, *options, uri], capture_output=True, text=True, timeout=120).stdout

    return run


def test_a_browser_opens_modules_and_saves_pictures(qc, browser) -> None:
    names = [f"/net/block.{i // 50}/Neg_{i}" for i in range(250)]
    onnx.save(chain(250, names), "scopes.onnx")
    assert qc("view", "scopes.onnx").code == 0
    found = browser(
        "scopes.html",
        """(async () => {
          const told = make("pre");
          const tell = (text) => told.append(`${text};`);
          const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
          const scale = current.view.scale;
          const room = Math.min(stage.clientWidth / current.width, stage.clientHeight / current.height);
          tell(0.6 < scale && scale <= room);
          click(current.svg.querySelectorAll(".module")[1]);
          tell(document.getElementById("path").textContent);
          tell(minimap.hasAttribute("hidden"));
          zoom(4);
          tell(minimap.hasAttribute("hidden"));
          const drawn = new DOMParser().parseFromString(svg_text(), "image/svg+xml");
          tell(drawn.querySelectorAll(".box").length);
          tell((await png_blob()).size > 1000);
          click(document.querySelector("#path a"));
          tell(current.label);
          go(Object.keys(data.cards).find((key) => data.cards[key].name === "/net/block.4/Neg_200"));
          tell(current.label);
          told.id = "told";
          document.body.append(told);
        })();""",
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', found)
    assert told is not None
    assert told[1] == "true;main graphblock.1;true;false;52;true;main graph;block.4;"


def test_a_browser_goes_into_a_body_and_back(qc, browser) -> None:
    onnx.save(branches(), "branches.onnx")
    assert qc("view", "branches.onnx").code == 0
    found = browser(
        "branches.html",
        """(async () => {
          const told = make("pre");
          const tell = () => told.append(`${document.getElementById("path").textContent} ${current.label};`);
          const click = (element) => element.dispatchEvent(new MouseEvent("click", { bubbles: true }));
          const escape = () => document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
          click(current.svg.querySelector(".box.opens"));
          tell();
          told.append(`${document.querySelector("#card .kind").textContent};`);
          escape();
          escape();
          tell();
          click(current.svg.querySelectorAll(".row.opens")[1]);
          tell();
          await new Promise((done) => {
            addEventListener("popstate", () => setTimeout(done));
            history.back();
          });
          tell();
          told.id = "told";
          document.body.append(told);
        })();""",
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', found)
    assert told is not None
    first, card, up, second, back, end = told[1].split(";")
    assert first == "main graphIfthen_branchelse_branch then_branch"
    assert card == "If"
    assert second == "main graphIfelse_branchthen_branch else_branch"
    assert up == back == "main graph main graph" and not end


def test_a_browser_colours_ops(qc, browser) -> None:
    assert qc("view", MODEL, "--data", DATA, "--overlay", "bits", "--overlay", "error").code == 0
    found = browser(
        "model.html",
        """(() => {
          const told = make("pre");
          const boxes = [...stage.querySelectorAll(".box")];
          const box = boxes.find((one) => one.firstElementChild.textContent.startsWith("conv_1"));
          const choice = document.getElementById("overlay");
          const tell = () => {
            const heat = box.style.getPropertyValue("--heat");
            told.append(`${box.matches(".heated")} ${heat} ${box.firstElementChild.textContent};`);
          };
          tell();
          choice.selectedIndex = 0;
          choice.dispatchEvent(new Event("change"));
          tell();
          told.id = "told";
          document.body.append(told);
        })();""",
    )
    told = re.search(r'<pre id="told">(.*?)</pre>', found)
    assert told is not None
    assert re.fullmatch(r"true [\d.]+% conv_1: 64 bit operations;false [\d.]+% conv_1;", told[1])
