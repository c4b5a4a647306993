"""``qc auto``: tries recipes until one keeps the accuracy that is asked for, and writes down what it did.

::

    judge = Judge("model.onnx", data, MaxDrop.parse("1%"), metric, labels)
    found = Climb(qc.Compilation("model.onnx", data=calibration), judge, minutes=10).run(ladder(weights=8))
    found.compiled.save("model.q.onnx")
"""

from .climb import Climb, Found, Trial
from .judging import Judge, MaxDrop, Verdict
from .recipe_file import recipe_text
from .recipes import Recipe, ladder, load_ladder

__all__ = [
    "Climb",
    "Found",
    "Judge",
    "MaxDrop",
    "Recipe",
    "Trial",
    "Verdict",
    "ladder",
    "load_ladder",
    "recipe_text",
]
