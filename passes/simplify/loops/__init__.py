"""Loops that run a known number of times."""
