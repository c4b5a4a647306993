"""Metrics: how a model does on data, each in a file of its own."""
