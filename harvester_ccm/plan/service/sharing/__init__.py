"""Sharing: several Services with one address. One of them, the primary, has the load balancer.

A secondary names its primary in an annotation. kube-vip announces the address for each of them, so a secondary gets it
only if its ports and those of all others fit.

* ``permission``: whether a Service may use the address of the primary that it names, and who uses its own.
* ``ranking``: which of the Services that ask for one address may use it.
* ``shared_address``: the plan of a Service that names a primary, or did.
"""
