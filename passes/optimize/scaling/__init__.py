"""Scales of channels: which can be chosen, which hang together, and which are good."""
