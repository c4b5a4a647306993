"""Products that make several tensors at once."""
