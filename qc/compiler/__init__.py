"""What to compile, as a value; what comes of it; and what is kept of it in a folder."""

from .compilation import DEFAULT_TARGET, MOST_WORKERS, Compilation, compile_together

__all__ = ["DEFAULT_TARGET", "MOST_WORKERS", "Compilation", "compile_together"]
