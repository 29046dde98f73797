"""What to do for one Service. Nothing here knows a Node's addresses."""
