"""Passes that move weights, biases and ranges so that less is lost."""
