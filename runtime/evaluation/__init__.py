"""How far a model is from its reference on data."""
