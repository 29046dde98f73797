"""The plan for one Service: a pure function from a snapshot of both clusters to the next write, with its reason.

Read ``plan`` first; it is the main path. ``phase`` says which situation a Service is in, and the module of that phase
says what is wanted. What a newcomer looks for:

* what this controller reads of a Service: ``request``; whether it serves it at all: ``scope``; all inputs: ``snapshot``,
  from the collections in ``store``
* kube-vip and its annotations: the package ``announcing``
* addresses and pools of Harvester: the package ``allocation``
* the object in Harvester: the package ``load_balancer``
* what belongs to whom: the package ``ownership``
* one address for several Services: the package ``sharing``
* a change of the workload type: ``switching``; the end of a Service: ``removal``; what stands in the way: ``obstacles``
* texts: ``messages`` (Harvester's answers), ``ineffective`` (annotations without effect), ``verdict`` (the condition)
* what a plan returns: ``desired``; how that becomes one request: ``patch``
"""
