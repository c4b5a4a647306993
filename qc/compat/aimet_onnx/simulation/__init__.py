"""What a simulation is made of: quantizers, the files that they come from, and the sessions that run it."""
