"""Tests. ``unit`` needs nothing, ``apiserver`` and the like need real API servers, which they start themselves."""
