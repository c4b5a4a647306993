"""Look at data as a model sees it.

Data are what --data takes of all commands, with the options that say how they are prepared.
"""
