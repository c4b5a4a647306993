"""What `insert-qdq` is made of: quantize ops between the ops of the graph, and what integer kernels want."""
