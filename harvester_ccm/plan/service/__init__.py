"""The plan for one Service: a pure function from a snapshot of both clusters to the next write, with its reason.

Read ``plan`` first; it is the main path. ``phase`` says which situation a Service is in, and the module of that phase
says what is wanted. The parts, in the order in which a reconcile meets them:

* ``store``: the collections that are read. ``snapshot``: the facts about one Service, read from them once.
* ``request``: what a user requests with fields and annotations. ``scope``: whether this controller serves the Service.
* ``phase``: the situations, an enum with a docstring for each. ``plan.PLANS``: the function of each.
* ``desired``: what such a function returns. ``patch``: how that becomes one request for the Service.
* ``verdict``: whether the Service is ready, for the condition, Events, metrics and commands.

Packages:

* ``announcing``: kube-vip and its annotations. Nothing else reads or writes them.
* ``allocation``: addresses and IP pools of Harvester, and deletions that lose none.
* ``load_balancer``: the object in Harvester.
* ``ownership``: what belongs to whom.
* ``sharing``: one address for several Services.

Modules for one situation each: ``switching`` (a change of the workload type), ``removal`` (the end of a Service),
``obstacles`` (what keeps a Service from a load balancer), ``supported`` (what none can do). ``waiting`` says which
address a Service keeps in all of them. Texts are in ``messages`` (answers of Harvester) and ``ineffective``
(annotations without effect).
"""
