"""Harvester's load balancer controller and webhook, emulated on a real API server.

Address pools, the states and messages of a LoadBalancer, admission rules, and the data path of VM load balancers with
real TCP probes and connections on loopback addresses.
"""

from devenv.harvester.emulator import EVERYBODY, Counts, HarvesterEmulator
from devenv.harvester.queue import FAST, STOCK, Pace

__all__ = ["EVERYBODY", "FAST", "STOCK", "Counts", "HarvesterEmulator", "Pace"]
