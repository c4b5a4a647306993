"""What to compile, as a value; what comes of it; and what is kept of it in a folder."""

from .compilation import MOST_WORKERS, Compilation, compile_together

__all__ = ["MOST_WORKERS", "Compilation", "compile_together"]
