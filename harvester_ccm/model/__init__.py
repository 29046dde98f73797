"""Typed views of the API objects that we read: only the fields that are used. No I/O, no clock."""
