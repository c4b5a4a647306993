"""The native libraries: where they are, and their kernels on numpy arrays."""
