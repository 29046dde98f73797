"""Servers in memory, clocks and builders of objects for tests."""
