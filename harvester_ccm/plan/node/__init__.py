"""The plan for one Node."""
