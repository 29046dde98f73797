"""Ownership: what is of this cluster, what is of others, and what is not proven to be either.

Everything that deletes or changes an object of Harvester asks here first. A name alone proves nothing: two independent
signs must agree, and nothing of another cluster is ever changed.

* ``owner``: the owner of a load balancer, and its name.
* ``right_harvester``: whether this is the Harvester and the namespace of this cluster.
* ``orphans``: load balancers of this cluster whose Service does not exist any more.
* ``claims``: addresses of others that stand on a Service, so that kube-vip would announce them.
* ``virtual_ips``: addresses of Services and load balancers, which are never published as addresses of a Node.
"""
