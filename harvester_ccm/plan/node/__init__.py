"""What to do for one Node."""
