"""All that is known about a result: what is measured of it, one page about it, and two of them compared."""

from .comparison import comparison_page
from .document import read_document
from .findings import Findings, find
from .page import report_page

__all__ = ["Findings", "comparison_page", "find", "read_document", "report_page"]
