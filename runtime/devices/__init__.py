"""Devices behind one protocol: what opens a lowered model, runs it, and tells what it made of it."""
