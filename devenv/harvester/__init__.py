"""Harvester's load-balancer controller and webhook, emulated on a real API server.

What only a Harvester cluster has and tests cannot: address pools, the states and messages of a LoadBalancer, admission
rules, and the data path of VM load balancers with real TCP probes and real connections on loopback addresses.
"""

from __future__ import annotations

from devenv.harvester.emulator import EVERYBODY, Counts, DataPath, HarvesterEmulator
from devenv.harvester.queue import FAST, STOCK, Pace

__all__ = ["EVERYBODY", "FAST", "STOCK", "Counts", "DataPath", "HarvesterEmulator", "Pace"]
