"""Mergeable summaries of tensors and of models."""
