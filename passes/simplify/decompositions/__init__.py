"""What each op is in other ops."""
