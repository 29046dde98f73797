"""The development environment: what tests and the demo stand on.

Real Kubernetes API servers and emulators of what only Harvester hardware has. Nothing here is part of the
product, and the product never imports it. Everything listens on loopback only and ends with the process that
started it.
"""
