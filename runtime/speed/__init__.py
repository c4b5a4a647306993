"""What models cost: time and memory, side by side."""
