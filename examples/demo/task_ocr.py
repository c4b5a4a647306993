"""Reading text: detector and recognizer of the package ``rapidocr-onnxruntime`` (Apache-2.0, PP-OCRv4).

Pages and lines of English words from Python's own help texts are drawn with the free font that Pillow carries
(Aileron, CC0) and then blurred and covered with noise, so the truth is known. Only the model files of the
package are used, without importing it: its dependencies are large and none is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import onnx
from common import DemoError, Feed, Run
from PIL import Image, ImageDraw, ImageFilter, ImageFont

Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels

PACKAGE = "rapidocr-onnxruntime"


def model_path(name: str) -> Path:
    """A model of the installed package, found without importing the package."""
    try:
        path = Path(str(distribution(PACKAGE).locate_file(f"rapidocr_onnxruntime/models/{name}")))
    except PackageNotFoundError:
        path = Path()
    if not path.is_file():
        command = f"pip install --no-deps --ignore-requires-python {PACKAGE}==1.4.4"
        raise DemoError(f"the package {PACKAGE} 1.4.4 is missing: install it with '{command}'")
    return path


def load_font(size: int) -> ImageFont.FreeTypeFont:
    """The font that Pillow carries."""
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise DemoError("this build of Pillow cannot draw fonts: install Pillow 10.1 or newer, with FreeType")
    return font


class Writer:
    """Draws random English text; the same seed gives the same drawings."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        help_text = " ".join(topics[key] for key in sorted(topics))
        self.words = sorted(set(re.findall(r"(?<![\w`\"'.])[A-Za-z]{2,11}(?=[ ,.])", help_text)))

    def text(self, words: int) -> str:
        """Words, sometimes capitals, with now and then a number in brackets."""
        line = " ".join(self.words[i] for i in self.random.integers(len(self.words), size=words))
        if self.random.random() < 0.15:
            line = line.upper()
        if self.random.random() < 0.25:
            line += f" ({self.random.integers(10, 9999)})"
        return line

    def draw(self, image: Image.Image, at: tuple[int, int], text: str, size: int, ink: int) -> Box:
        """Writes ``text`` and returns the box of its line, from the font's ascent to its descent."""
        font = load_font(size)
        bold = 1 if self.random.random() < 0.2 else 0
        pen = ImageDraw.Draw(image)
        pen.text(at, text, fill=ink, font=font, stroke_width=bold)
        left, _, right, _ = pen.textbbox(at, text, font=font, stroke_width=bold)
        return left, at[1], right, at[1] + sum(font.getmetrics())

    def degrade(self, image: Image.Image) -> np.ndarray:
        """Blurs and adds noise; uint8 (height, width)."""
        blurred = image.filter(ImageFilter.GaussianBlur(self.random.uniform(0, 0.9)))
        noise = self.random.normal(0, self.random.uniform(2, 16), (image.height, image.width))
        return np.clip(np.asarray(blurred) + noise, 0, 255).astype(np.uint8)

    def shades(self) -> tuple[int, int]:
        """Paper and ink; a sixth of the time light on dark."""
        paper, ink = int(self.random.integers(170, 256)), int(self.random.integers(0, 100))
        return (ink, paper) if self.random.random() < 1 / 6 else (paper, ink)

    def line(self, height: int) -> tuple[np.ndarray, str]:
        """A picture of one line, uint8 (height, width), and its text."""
        text = self.text(int(self.random.integers(1, 6)))
        paper, ink = self.shades()
        size = int(self.random.integers(height // 2, height * 3 // 4))
        _, top, right, bottom = load_font(size).getbbox(text)
        image = Image.new("L", (int(right) + 16, height), paper)
        middle = (height - (bottom - top)) // 2 - top
        self.draw(image, (8, int(middle + self.random.integers(-2, 3))), text, size, ink)
        tilted = image.rotate(self.random.uniform(-1.5, 1.5), Image.Resampling.BILINEAR, fillcolor=paper)
        return self.degrade(tilted), text

    def page(self, width: int, height: int) -> tuple[np.ndarray, list[Box]]:
        """A picture of a page, uint8 (height, width), and the boxes of its lines."""
        paper, ink = self.shades()
        image = Image.new("L", (width, height), paper)
        boxes: list[Box] = []
        y = 12
        while True:
            size = int(self.random.integers(11, 34))
            if y + 1.6 * size > height:
                return self.degrade(image), boxes
            x = int(self.random.integers(8, width // 3))
            text = self.text(int(self.random.integers(1, 5)))
            while load_font(size).getlength(text) > width - x - 8:
                text = text[:-1].rstrip()
            boxes.append(self.draw(image, (x, y), text, size, ink))
            y += int(size * self.random.uniform(1.5, 2.5))


def components(mask: np.ndarray) -> Iterator[tuple[slice, slice]]:
    """Bounding slices of the 4-connected regions of a boolean (height, width) array, merged run by run."""
    parent: list[int] = []
    runs: list[tuple[int, int, int]] = []  # row, start, stop
    above: list[int] = []
    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.r_[False, row, False].astype(np.int8)))
        current = []
        for start, stop in edges.reshape(-1, 2).tolist():
            index = len(runs)
            runs.append((y, start, stop))
            parent.append(index)
            current.append(index)
            for other in above:
                if runs[other][1] < stop and start < runs[other][2]:
                    parent[root(parent, other)] = root(parent, index)
        above = current
    regions: dict[int, list[tuple[int, int, int]]] = {}
    for index, run in enumerate(runs):
        regions.setdefault(root(parent, index), []).append(run)
    for members in regions.values():
        rows, starts, stops = zip(*members, strict=True)
        yield slice(min(rows), max(rows) + 1), slice(min(starts), max(stops))


def root(parent: list[int], index: int) -> int:
    """The representative of a set in a union-find forest, with path halving."""
    while parent[index] != index:
        parent[index] = parent[parent[index]]
        index = parent[index]
    return index


def overlap(a: Box, b: Box) -> float:
    """Intersection over union of two boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return width * height / (areas - width * height)


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance."""
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


class DetectionTask:
    """Harmonic mean of precision and recall of text lines found (intersection over union above one half)."""

    name = "ocr_detector"
    metric = "hmean"
    PAGES, CALIBRATION = 40, 16
    WIDTH, HEIGHT = 640, 480

    def __init__(self) -> None:
        self.model = model_path("ch_PP-OCRv4_det_infer.onnx")
        self.data = f"{self.PAGES} rendered pages, calibrated on {self.CALIBRATION} others"

    def _pages(self, seed: int, count: int) -> Iterator[tuple[Feed, list[Box]]]:
        writer = Writer(seed)
        for _ in range(count):
            page, boxes = writer.page(self.WIDTH, self.HEIGHT)
            gray = (page.astype(np.float32) / 255 - 0.5) / 0.5
            yield {"x": np.repeat(gray[None, None], 3, axis=1)}, boxes

    def calibration(self) -> Iterator[Feed]:
        """Feeds of one page each."""
        for feed, _ in self._pages(1, self.CALIBRATION):
            yield feed

    def score(self, run: Run) -> float:
        """Harmonic mean of precision and recall over all pages."""
        matched = found = present = 0
        for feed, boxes in self._pages(2, self.PAGES):
            guesses = self.boxes(run(feed)[0][0, 0])
            found, present = found + len(guesses), present + len(boxes)
            for box in boxes:
                best = max(guesses, key=lambda guess: overlap(box, guess), default=None)
                if best is not None and overlap(box, best) > 0.5:
                    guesses.remove(best)
                    matched += 1
        return 2 * matched / (found + present)

    @staticmethod
    def boxes(probability: np.ndarray) -> list[Box]:
        """Boxes of the text lines in a (height, width) map, after DB (arXiv:1911.08947)."""
        boxes: list[Box] = []
        mask = probability > 0.3
        for rows, columns in components(mask):
            height, width = rows.stop - rows.start, columns.stop - columns.start
            inside = probability[rows, columns][mask[rows, columns]]
            if min(height, width) >= 3 and inside.mean() > 0.6:
                grow = 1.6 * height * width / (2 * (height + width))
                boxes.append((columns.start - grow, rows.start - grow, columns.stop + grow, rows.stop + grow))
        return boxes

    def timing_feed(self) -> Feed:
        """One page."""
        return next(self.calibration())


class RecognitionTask:
    """Share of the characters of rendered lines that are read right (one minus edit distance by length)."""

    name = "ocr_recognizer"
    metric = "characters right"
    LINES, CALIBRATION = 200, 64
    HEIGHT, LEAST_WIDTH = 48, 320

    def __init__(self) -> None:
        self.model = model_path("ch_PP-OCRv4_rec_infer.onnx")
        properties = {entry.key: entry.value for entry in onnx.load(self.model).metadata_props}
        self.characters = ["", *properties["character"].split("\n"), " "]
        self.data = f"{self.LINES} rendered lines, calibrated on {self.CALIBRATION} others"

    def _lines(self, seed: int, count: int) -> Iterator[tuple[Feed, str]]:
        writer = Writer(seed)
        for _ in range(count):
            line, text = writer.line(self.HEIGHT)
            gray = (line.astype(np.float32) / 255 - 0.5) / 0.5
            padded = np.pad(gray, ((0, 0), (0, max(0, self.LEAST_WIDTH - gray.shape[1]))))
            yield {"x": np.repeat(padded[None, None], 3, axis=1)}, text

    def calibration(self) -> Iterator[Feed]:
        """Feeds of one line each."""
        for feed, _ in self._lines(3, self.CALIBRATION):
            yield feed

    def score(self, run: Run) -> float:
        """The share of characters read right over all lines."""
        wrong = total = 0
        for feed, text in self._lines(4, self.LINES):
            wrong += min(len(text), edit_distance(self.read(run(feed)[0][0]), text))
            total += len(text)
        return 1 - wrong / total

    def read(self, probabilities: np.ndarray) -> str:
        """Greedy CTC of (steps, classes): the likeliest class of each, less repeats and blanks (class 0)."""
        best = probabilities.argmax(1)
        kept = best[np.r_[True, best[1:] != best[:-1]] & (best != 0)]
        return "".join(self.characters[i] for i in kept).strip()

    def timing_feed(self) -> Feed:
        """One line."""
        return next(self.calibration())
