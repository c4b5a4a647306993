"""``qc view``: ops folded into modules, by themselves and in a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pages import Page, chain

from qc.diff.wiring import Wiring
from qc.ir import lift
from qc.ir.graph import Op
from qc.view.modules import Module, folded, ops_of
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


def test_ops_without_scopes_are_folded_by_their_order() -> None:
    items = folded(lift(chain(450)).graph.ops())
    assert [item.label for item in items] == [f"{i} to {min(i + 99, 450)} of 450" for i in range(1, 450, 100)]
    assert len({item.key for item in items}) == len(items)


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=4), min_size=1, max_size=60))
def test_folding_keeps_every_op(paths: list[list[str]]) -> None:
    ops = lift(chain(len(paths), ["/".join([*path, "Neg"]) for path in paths])).graph.ops()
    with patch("qc.view.modules.MOST_BOXES", 5), patch("qc.view.modules._STRETCH", 4):
        items = folded(ops)
    assert sorted(op.id for op in ops_of(items)) == sorted(op.id for op in ops)

    def keys(found: Iterable[Op | Module]) -> Iterator[str]:
        for item in found:
            if isinstance(item, Module):
                yield item.key
                yield from keys(item.items)

    assert len(list(keys(items))) == len(set(keys(items)))


def test_a_tensor_that_goes_back_into_a_module_is_a_reference() -> None:
    """Modules may read each other in a circle, which a picture from top to bottom cannot show by lines."""
    names = [f"{'left' if i % 2 else 'right'}/Neg_{i}" for i in range(8)]
    scope = next(iter(Wiring(lift(chain(8, names))).scopes.values()))
    with patch("qc.view.modules.MOST_BOXES", 4):
        picture = picture_of(scope, "", folded(scope.ops))
    number = {box: place for place, box in enumerate(picture.boxes)}
    assert sum(box.kind == "module" for box in picture.boxes) == 2
    assert any(box.kind == "reference" for box in picture.boxes)
    assert all(number[line.source] < number[end.box] for line in picture.lines for end in line.ends)


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
          click(current.svg.querySelectorAll(".module")[1]);
          tell(document.getElementById("path").textContent);
          tell(minimap.hasAttribute("hidden"));
          click(document.getElementById("fit"));
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
    assert told[1] == "main graphblock.1;false;true;52;true;main graph;block.4;"


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
