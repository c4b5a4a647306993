"""The IR as text: printed for people, and parsed back to the same IR."""

from .files import data_path, load_text, save_text
from .parser import parse_model
from .printer import Printed, print_model, print_parts

__all__ = ["Printed", "data_path", "load_text", "parse_model", "print_model", "print_parts", "save_text"]
