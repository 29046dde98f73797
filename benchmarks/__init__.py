"""How fast the program is and what it costs, on real API servers, beside what these alone need for the same.

``python -m benchmarks`` prints one table; ``docs/contributing/benchmarks.md`` says what the rows mean.
"""
