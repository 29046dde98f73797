"""Fields of Services and load balancers that the oracles read."""

from harvester_ccm.names import DHCP_ADDRESS, LB_SERVICE_NAME
from tests.worlds.memory_server import Document


def shown(service: Document) -> tuple[str, ...]:
    """Return the addresses in the status of a Service."""
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return tuple(entry["ip"] for entry in ingress if entry.get("ip"))


def condition_reasons(service: Document) -> set[str]:
    """Return the reasons of a Service's conditions."""
    return {one["reason"] for one in (service.get("status") or {}).get("conditions") or ()}


def given(balancer: Document) -> str:
    """Return the allocated address of a load balancer."""
    return str(((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip") or "")


def served(balancer: Document) -> str:
    """Return the address of a load balancer, from a pool or from DHCP."""
    address = given(balancer)
    return str(balancer["status"].get("address") or "") if address == DHCP_ADDRESS else address


def name_of(document: Document) -> str:
    """Return the name of an object."""
    return str(document["metadata"]["name"])


def annotation(document: Document, key: str) -> str:
    """Return an annotation; empty for none."""
    return str((document["metadata"].get("annotations") or {}).get(key) or "").strip()


def made_for(balancer: Document) -> str:
    """Return the name of the Service that a load balancer is labelled for."""
    return str((balancer["metadata"].get("labels") or {}).get(LB_SERVICE_NAME, ""))


def wants_one(service: Document) -> bool:
    """Return whether a Service has the type LoadBalancer."""
    return bool(service["spec"]["type"] == "LoadBalancer")
