"""Which tensors hold data, what counts as one operator, and why a tensor gets a quantizer or none."""
