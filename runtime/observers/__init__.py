"""The ops that summarize tensors, added to a model."""
