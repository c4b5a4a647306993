"""What can be read off a graph: operator facts, constants, weights, QDQ pairs, tensors across graphs."""
