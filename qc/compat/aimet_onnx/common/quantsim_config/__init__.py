"""The configurations that come with qc, by the names of AIMET's functions."""
