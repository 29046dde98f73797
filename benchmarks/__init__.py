"""Benchmarks of the program on real API servers: latency, bulk, requests, processor time and memory.

``python -m benchmarks`` runs them all and prints each number beside its target. See ``docs/benchmarks.md``.
"""
