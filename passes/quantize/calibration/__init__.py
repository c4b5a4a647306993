"""What `calibrate` is made of: ranges, thresholds, and biases that follow from other grids."""
