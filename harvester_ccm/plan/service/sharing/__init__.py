"""Sharing: several Services with one address. One of them, the primary, has the load balancer.

A secondary names its primary in the annotation ``primary-service`` and has no load balancer. kube-vip announces the
address for each of the Services, and Harvester, for a VM load balancer, forwards the ports of all of them. So a
secondary gets the address only if no other Service on it has one of its ports.

* ``permission``: whether a Service may use the address of the primary that it names, with the Warning if not; and which
  Services use its own address, so that its load balancer must stay.
* ``ranking``: which of the Services that request one address get it, and what of a Service the plans of others read.
* ``shared_address``: the plan of a Service that names a primary, or did.

Three rules hold everywhere. A Service that has the address keeps it, whatever a newer one requests. A load balancer is
deleted only when no managed Service uses its address. Tenants can write every annotation and label of their Services
but not the status: what only an annotation claims gives no right to an address.

The label ``primary-service`` is the Go provider's. It remembers the primary whose address a Service had, after the
annotation is gone.
"""
