"""What scripts ask of ops by their type."""
