"""The error of every quantized tensor: measured, as a table, as a plot in the terminal, and as a page."""

from .chart import Chart
from .errors import LayerError, LayerErrors, layer_errors
from .page import evaluation_page
from .table import layer_document, layer_plot, layer_table

__all__ = [
    "Chart",
    "LayerError",
    "LayerErrors",
    "evaluation_page",
    "layer_document",
    "layer_errors",
    "layer_plot",
    "layer_table",
]
