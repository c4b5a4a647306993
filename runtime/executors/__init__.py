"""Executors: run models on data, here or elsewhere, and collect statistics."""
