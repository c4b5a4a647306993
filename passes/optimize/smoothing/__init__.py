"""Smoothing: which tensors may have their channels scaled, and what that does to the layers behind."""
