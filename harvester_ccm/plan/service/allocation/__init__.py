"""Allocation: from a Service without a load balancer to an address that Harvester has allocated, and back.

Harvester allocates an address from a pool when a load balancer is created, remembers it by the name of the load
balancer, and forgets it in a few known cases. This package decides when a load balancer may be created or deleted so
that no address is lost:

* ``state``: what the Ready condition of a load balancer says, read once into facts.
* ``creation``: the plan of a Service that has no load balancer.
* ``pending``: the plan of a Service whose load balancer has no address yet.
* ``deletion``: the order of a deletion that loses no address.
* ``address_pools`` and ``requested_address``: whether Harvester gives a new Service the address that it requests.
* ``chosen_network``: the network by which Harvester chose the pool, compared with the requested one.

Versions of Harvester differ here. Nothing asks for a version: what Harvester stored is compared with what was sent.
"""
