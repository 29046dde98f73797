"""Harvester's load-balancer controller and webhook, emulated on a real API server.

What only a Harvester cluster has and tests cannot: address pools, the states and messages of a LoadBalancer, admission
rules, and the data path of VM load balancers with real TCP probes and real connections on loopback addresses.
"""

from __future__ import annotations

from devenv.harvester.emulator import EVERYBODY, REAL_QPS, Counts, DataPath, HarvesterEmulator

__all__ = ["EVERYBODY", "REAL_QPS", "Counts", "DataPath", "HarvesterEmulator"]
