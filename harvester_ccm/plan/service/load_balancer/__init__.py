"""The load balancer of a Service in Harvester: what it must contain, and what Harvester rejects of that.

* ``specification``: the object as a whole, and the changes that an existing one needs. Its docstring says which fields
  are set only once, because Harvester overwrites them or a change would cost the address.
* ``vm_spec``: listeners, backends and health check, where Harvester forwards to the VMs of the nodes.
* ``refused``: the listeners that Harvester rejects although it would take the others.
* ``delegated``: the plan of a Service whose address Harvester announces itself.

A load balancer is compared by its desired fields alone. Fields that another client or a newer Harvester wrote stay, and
a write contains the whole object as it was read. A field that Harvester did not store as it was sent, and listeners
that it rejected, are remembered in ``ServiceState`` and not sent again.

A new field belongs to ``new_load_balancer``, and also to ``load_balancer_change`` if it must always have its value.
"""
