"""Calibration and evaluation data: sources, files, and what fits a model's inputs."""
