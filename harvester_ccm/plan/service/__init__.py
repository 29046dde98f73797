"""The plan for one Service. Nothing here depends on the addresses of Nodes."""
