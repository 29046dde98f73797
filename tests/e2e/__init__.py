"""The program as a process of its own, between two real API servers, seen from outside."""
