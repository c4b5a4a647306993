"""Ops whose result the model can do without."""
