"""The commands of qc: one in each file, found by the name of the file."""
