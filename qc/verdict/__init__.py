"""A verdict on a compilation: what its result keeps, and what it costs, beside the float model."""
