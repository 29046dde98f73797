"""Reconcilers: read from caches, call one plan function, apply what it returned. They do not import each other."""
