"""What the passes on constants share."""
