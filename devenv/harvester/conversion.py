"""What an upgrade to Harvester 1.2 makes of the load balancers of v1alpha1. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from devenv.watch import Document


def converted(balancer: Document, *, pool: str, machines: Mapping[str, str]) -> Document:
    """Return a load balancer in v1beta1.

    ``pool`` is the one that has its address booked; ``machines`` is VM address to name. The period of the health check
    is lost, because its key is written otherwise; nothing says that the workload type is ``vm``.
    """
    old, status = balancer["spec"], dict(balancer["status"])
    servers = old.get("backendServers") or []
    spec = {key: value for key, value in old.items() if key not in {"backendServers", "healthCheck"}}
    spec["backendServerSelector"] = {"harvesterhci.io/vmName": [machines[one] for one in servers if one in machines]}
    if "healthCheck" in old:
        spec["healthCheck"] = {key: value for key, value in old["healthCheck"].items() if key != "PeriodSeconds"}
    if servers:
        status["backendServers"] = servers
    if status.get("address"):
        from_dhcp = old["ipam"] == "dhcp"
        status["allocatedAddress"] = {"ip": "0.0.0.0"} if from_dhcp else {"ip": status["address"], "ipPool": pool}  # noqa: S104 - Harvester's word
    return {
        **balancer,
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "spec": spec,
        "status": status,
    }
