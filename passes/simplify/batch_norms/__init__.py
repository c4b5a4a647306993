"""What `fold-batch-norms` is made of."""
