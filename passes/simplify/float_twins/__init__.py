"""What `dequantize` is made of."""
