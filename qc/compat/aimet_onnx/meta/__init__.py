"""The graph of a model in AIMET's words: ops, and the products between them."""
