"""The plan for one Service."""
