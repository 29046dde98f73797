"""The Service and the EndpointSlice that Harvester generates for a VM load balancer. Pure."""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from devenv.watch import Document, labels_of

SERVICE_LABEL: Final = "loadbalancer.harvesterhci.io/servicelb"
SLICE_SERVICE_LABEL: Final = "kubernetes.io/service-name"
DUMMY_ADDRESS: Final = "10.52.0.255"
"""Keeps a load balancer without backends from falling through to the host; no VM has it."""
DUMMY_UID: Final = "dummy347-546a-4642-9da6-5608endpoint"

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LETTERS: Final = (
    "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_NAME_PROBLEM: Final = (
    f"name part must {_LETTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    "regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_PROBLEM: Final = (
    f"a valid label must be an empty string or {_LETTERS} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    "regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

Selector = Mapping[str, Sequence[str] | None]


def generated_service(balancer: Document, address: str) -> Document:
    """Return the Service for a load balancer that has none."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(balancer, {SERVICE_LABEL: "true"}),
        "spec": {"type": "LoadBalancer", "loadBalancerIP": address, "ports": _service_ports(balancer)},
    }


def updated_service(service: Document, balancer: Document, address: str) -> Document:
    """Return the Service with address and ports renewed; everything else stays as it is."""
    spec = {**service["spec"], "loadBalancerIP": address, "ports": _service_ports(balancer)}
    return {**service, "spec": spec}


def generated_slice(balancer: Document, endpoints: list[Document]) -> Document:
    """Return the EndpointSlice for a load balancer that has none."""
    name = balancer["metadata"]["name"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(balancer, {SLICE_SERVICE_LABEL: name, SERVICE_LABEL: "true"}),
        "addressType": "IPv4",
        "ports": slice_ports(balancer),
        "endpoints": endpoints,
    }


def slice_ports(balancer: Document) -> list[Document]:
    """Return the ports of the EndpointSlice: the backend ports."""
    return [
        {"name": one.get("name") or "", "protocol": one["protocol"], "port": backend_port_of(one)}
        for one in _listeners(balancer)
    ]


def _service_ports(balancer: Document) -> list[Document]:
    return [
        {
            "name": one.get("name") or "",
            "protocol": one["protocol"],
            "port": one["port"],
            "targetPort": backend_port_of(one),
        }
        for one in _listeners(balancer)
    ]


def backend_port_of(listener: Mapping[str, Any]) -> int:
    """Return where a listener leads; 0 where nothing says so, which only v1alpha1 lets pass.

    The real controller reads it as a Go integer: what is absent is 0, and the API server judges what is written.
    """
    return listener.get("backendPort") or 0


def _listeners(balancer: Document) -> list[Document]:
    return list(balancer["spec"].get("listeners") or ())


def _metadata(balancer: Document, labels: dict[str, str]) -> Document:
    metadata = balancer["metadata"]
    owner = {
        "apiVersion": balancer["apiVersion"],
        "kind": balancer["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "labels": labels,
        "ownerReferences": [owner],
    }


def selector_problem(selector: Selector) -> str | None:
    """Return why a backend selector cannot be used, in the words of Kubernetes' Go library, or None."""
    for key, values in selector.items():
        prefix, slash, name = key.rpartition("/")
        if not _NAME.fullmatch(name) or (slash and not _PREFIX.fullmatch(prefix)):
            return f'key: Invalid value: "{key}": {_NAME_PROBLEM}'
        if not values:
            return "values: Invalid value: []string{}: for 'in', 'notin' operators, values set can't be empty"
        for number, value in enumerate(values):
            if value and not _NAME.fullmatch(value):
                return f'values[{number}][{key}]: Invalid value: "{value}": {_VALUE_PROBLEM}'
    return None


def matches(selector: Selector | None, instance: Document) -> bool:
    """Whether a VMI's labels have, for every key, one of its values. No selector matches nothing."""
    labels = labels_of(instance)
    return bool(selector) and all(labels.get(key) in (values or ()) for key, values in (selector or {}).items())


def ipv4_of(instance: Document) -> str | None:
    """Return the first IPv4 address that a VMI reports, whatever network it is on."""
    for interface in (instance.get("status") or {}).get("interfaces") or ():
        try:
            return str(ipaddress.IPv4Address(interface.get("ipAddress") or ""))
        except ValueError:
            continue
    return None


def endpoints_of(
    instances: Sequence[tuple[Document, str]], known: Sequence[Document], *, ready: bool = False
) -> list[Document]:
    """Return one endpoint per VMI and address: a known one as it is; ``ready`` is the state of a new one."""
    before = {(entry["targetRef"]["uid"], entry["addresses"][0]): entry for entry in known}
    return [
        before.get((instance["metadata"]["uid"], address)) or _new_endpoint(instance, address, ready)
        for instance, address in instances
    ]


def _new_endpoint(instance: Document, address: str, ready: bool) -> Document:
    target = {key: instance["metadata"][key] for key in ("namespace", "name", "uid")}
    return {"addresses": [address], "conditions": {"ready": ready}, "targetRef": target}


def dummy_endpoint(balancer: Document) -> Document:
    """Return the placeholder of a load balancer without a ready endpoint."""
    metadata = balancer["metadata"]
    target: dict[str, Any] = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": DUMMY_UID}
    return {"addresses": [DUMMY_ADDRESS], "conditions": {"ready": True}, "targetRef": target}


def with_readiness(endpoint: Document, *, ready: bool) -> Document:
    """Return the endpoint with its condition."""
    return {**endpoint, "conditions": {**(endpoint.get("conditions") or {}), "ready": ready}}


def is_ready(endpoint: Document) -> bool:
    """Whether the endpoint's Ready condition is set."""
    return bool((endpoint.get("conditions") or {}).get("ready"))


def is_dummy(endpoint: Document) -> bool:
    """Whether the endpoint is the placeholder."""
    return bool((endpoint.get("targetRef") or {}).get("uid") == DUMMY_UID)


def judged(endpoint: Document, address: str, *, healthy: bool) -> Document:
    """Return the endpoint with the verdict of its probe, if it is the one with this address."""
    if is_dummy(endpoint) or endpoint["addresses"][0] != address:
        return endpoint
    return with_readiness(endpoint, ready=healthy)


def external_address(service: Document) -> str:
    """Return the first address in a Service's status; empty without one."""
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or [{}]
    return ingress[0].get("ip") or ""
