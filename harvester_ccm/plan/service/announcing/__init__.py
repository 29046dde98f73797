"""Announcing: how kube-vip in the guest cluster gets an address to announce, and what it shows of that.

Read these three first. Together they know everything about kube-vip's annotations:

* ``seen``: what kube-vip can read on a Service, and what it has written there.
* ``record``: what this controller did last, in one annotation, and the steps that there are.
* ``sequence``: the next step from both towards what a plan wants.

The other modules use them:

* ``announced``: the plan of a Service with an allocated address.
* ``dhcp_lease``: the same for an address that kube-vip requests by DHCP.
* ``device``: the device of the nodes in the network of the Service.
* ``endpoints``: whether kube-vip counts an endpoint. Without one it announces nothing.
* ``readiness``: what the condition says about a published address.
* ``address_events``: Events about an address that changed, was lost, or is not the requested one.

To change what this controller writes for kube-vip, change ``sequence`` only, and ``seen`` for what it reads. A fact
about kube-vip has a recording of the real program in ``tests/devenv/recordings``.
"""
