"""The main module of processes that ``multiprocessing`` starts for a script: the script itself."""

from .script import execute

if __name__ == "__mp_main__":
    execute(globals())
