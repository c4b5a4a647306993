"""Convert, compare, check and apply encodings files.

Works with encodings files of the versions 0.6.1, 1.0.0, 2.0.0 and 2.1.0.
"""
