"""The whole program, or its Node controllers, between two API servers in memory, with simulated time.

These tests state what becomes of a cluster, not how a package works, which ``tests/unit`` does. Servers are in
``tests/support``, random schedules in ``tests/simulation``.
"""
