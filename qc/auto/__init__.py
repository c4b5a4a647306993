"""``qc auto``: tries recipes until one keeps the accuracy that is asked for, and writes down what it did.

::

    search = RecipeSearch("model.onnx", data="calibration.npz", max_drop="1%")
    found = search.run()
    found.compiled.save("model.auto.onnx")
    Path("model.auto.recipe.toml").write_text(recipe_text(found, search.judge, "ort-cpu"))
"""

from .agreement import Agreement, agreement
from .climb import Failure, Found
from .judging import Judge, Judgement, MaxDrop
from .recipe_file import recipe_text
from .recipes import Recipe, ladder, load_ladder
from .search import RecipeSearch, find_recipe
from .trial import Trial

__all__ = [
    "Agreement",
    "Failure",
    "Found",
    "Judge",
    "Judgement",
    "MaxDrop",
    "Recipe",
    "RecipeSearch",
    "Trial",
    "agreement",
    "find_recipe",
    "ladder",
    "load_ladder",
    "recipe_text",
]
