"""Codes of weights, chosen so that the results of layers change least on data."""
