"""Fields of Services and load balancers that the oracles read."""

from harvester_ccm.names import (
    DHCP_ADDRESS,
    LB_SERVICE_NAME,
    LOAD_BALANCER_CLASS,
    SERVICE_FINALIZER,
)
from tests.simulation.harvester import LEASED
from tests.simulation.kubevip import LEASES
from tests.support.memory_server import Document


def shown(service: Document) -> tuple[str, ...]:
    """Return the addresses in the status of a Service."""
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return tuple(entry["ip"] for entry in ingress if entry.get("ip"))


def has_finalizer(service: Document) -> bool:
    return SERVICE_FINALIZER in (service["metadata"].get("finalizers") or ())


def given(balancer: Document) -> str:
    return str(((balancer.get("status") or {}).get("allocatedAddress") or {}).get("ip") or "")


def served(balancer: Document) -> str:
    """Return the address of a load balancer, from a pool or from DHCP; empty for none.

    The controller itself writes the one from DHCP. One that no DHCP server has is not the load balancer's.
    """
    address = given(balancer)
    if address != DHCP_ADDRESS:
        return address
    lease = str((balancer.get("status") or {}).get("address") or "")
    return lease if lease in LEASES or lease.startswith(LEASED) else ""


def name_of(document: Document) -> str:
    return str(document["metadata"]["name"])


def annotation(document: Document, key: str) -> str:
    return str((document["metadata"].get("annotations") or {}).get(key) or "").strip()


def made_for(balancer: Document) -> str:
    """Return the name of the Service that a load balancer is labelled for."""
    return str((balancer["metadata"].get("labels") or {}).get(LB_SERVICE_NAME, ""))


def wants_one(service: Document) -> bool:
    """Return whether a Service asks this controller for a load balancer, by its type and its class."""
    is_load_balancer = bool(service["spec"]["type"] == "LoadBalancer")
    return is_load_balancer and not has_other_class(service)


def has_other_class(service: Document) -> bool:
    """Return whether a Service asks another controller for a load balancer."""
    return service["spec"].get("loadBalancerClass") not in {None, LOAD_BALANCER_CLASS}
