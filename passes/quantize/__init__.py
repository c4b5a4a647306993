"""Passes that decide what is quantized, how, and with which numbers."""
