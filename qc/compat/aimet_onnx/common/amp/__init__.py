"""What scripts import from ``aimet_common.amp``."""
