"""AIMET's own arithmetic of ranges."""
