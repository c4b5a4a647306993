"""The rules of `set-precision`."""
