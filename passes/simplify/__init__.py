"""Passes that rewrite the float graph and leave its outputs as they are."""
