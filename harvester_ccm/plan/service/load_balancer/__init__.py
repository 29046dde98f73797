"""The load balancer of a Service in Harvester: what it must contain, and what Harvester refuses of that.

* ``specification``: the object as a whole, and the changes that an existing one needs.
* ``vm_spec``: listeners, backends and health check, where Harvester forwards to the VMs of the nodes.
* ``refused``: what Harvester rejects of a load balancer although it would take the rest.
* ``delegated``: the plan of a Service whose address Harvester announces itself.
"""
