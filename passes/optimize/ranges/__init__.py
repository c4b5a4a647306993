"""Ranges of activations: what becomes of them further on, and which to try."""
