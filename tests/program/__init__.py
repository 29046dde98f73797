"""The whole program, or all that it does for Nodes, between two API servers in memory, with time that jumps.

What is tested here is no room's own: what becomes of a cluster when a server is away, somebody else writes the same, a
copy comes, or many join at once. Each room's own tests are in ``tests/unit``. Worlds are in ``tests/worlds`` and, for
schedules that a seed decides, in ``tests/simulation``.
"""
