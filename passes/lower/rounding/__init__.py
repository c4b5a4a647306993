"""What all lowerings share: a rounded version of each quantized tensor in front of what reads it."""
