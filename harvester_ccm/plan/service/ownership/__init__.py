"""Ownership: what belongs to this cluster, what belongs to others, and what is not proven to be either.

Everything that deletes or changes an object of Harvester asks here first. A name alone proves nothing: two independent
signs must agree, and nothing of another cluster is ever changed. A tenant can write annotations, so no mark on a
Service decides about a load balancer.

* ``owner``: the owner of a load balancer by labels, annotations, name and address; its name; and how a user adopts one.
  Read ``candidate_of`` first.
* ``right_harvester``: whether this is the Harvester and the namespace of this cluster. In a wrong one, every Service
  would get another address.
* ``orphans``: load balancers of this cluster whose Service does not exist any more, and what prevents their deletion.
* ``claims``: addresses of others that stand on a Service, so that kube-vip would announce them. The writes that remove
  them never wait.
* ``virtual_ips``: addresses of Services and load balancers, which are never published as addresses of a Node.

Who asks: ``snapshot.observe`` for each Service, the controller of orphans, the creation gate, and ``cleanup`` and
``explain``. All of them get the same answer from the same functions.
"""
