"""Pictures of models: an HTML page for the browser, and source text for Graphviz."""

from .dot import dot_source
from .model_explorer import graph_collection
from .overlays import Overlay, bits_overlay, error_overlay, sensitivity_overlay, time_overlay
from .page import html_page
from .precision import OpPrecision, precision_map
from .scenes import MAX_OPS, Crop

__all__ = [
    "MAX_OPS",
    "Crop",
    "OpPrecision",
    "Overlay",
    "bits_overlay",
    "dot_source",
    "error_overlay",
    "graph_collection",
    "html_page",
    "precision_map",
    "sensitivity_overlay",
    "time_overlay",
]
