"""Layers: ops that multiply by a weight, as algorithms on weights see them."""
