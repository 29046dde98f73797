"""Speed and cost of the controller on real API servers, next to what the API servers alone need in the same run.

``python -m benchmarks`` prints one table, which ``docs/contributing/benchmarks.md`` explains.
"""
