"""What everything else rests on and what knows nothing of graphs: files, names, JSON, plugins."""
