"""What no load balancer of Harvester can do for a Service."""

from typing import Any, Final

import pytest

from harvester_ccm.model.core import Service
from harvester_ccm.names import KUBE_VIP_ADDRESSES, WORKLOAD_TYPE, Reason
from harvester_ccm.plan.service.supported import unsupported_reason
from tests.support.builders import ADDRESS, service

DUAL: Final = {"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"}
NO_NODE_PORTS: dict[str, Any] = {"spec": {"allocateLoadBalancerNodePorts": False}, "ports": [{"port": 80}]}
ONE_NODE_PORT: dict[str, Any] = {**NO_NODE_PORTS, "ports": [{"port": 80}, {"port": 81, "nodePort": 30081}]}

ROWS: dict[str, tuple[Service, bool, str]] = {
    "plain": (service(), True, ""),
    "families not known": (service(spec={"ipFamilies": []}), False, ""),
    "IPv4": (service(spec={"ipFamilies": ["IPv4"]}), False, ""),
    "IPv6 only": (service(spec={"ipFamilies": ["IPv6"]}), False, "spec.ipFamilies has no IPv4"),
    "IPv6 only, with an address": (
        service(spec={"ipFamilies": ["IPv6"]}, ours=True, address=ADDRESS),
        False,
        "spec.ipFamilies has no IPv4",
    ),
    "both families preferred": (service(spec={**DUAL, "ipFamilyPolicy": "PreferDualStack"}), False, ""),
    "IPv6 first": (service(spec={"ipFamilies": ["IPv6", "IPv4"]}), False, ""),
    "both families required": (service(spec=DUAL), False, "RequireDualStack, asks for an IPv6 address, too"),
    "both families required, with an address": (service(spec=DUAL, address=ADDRESS), False, ""),
    "both families required, with the finalizer": (
        service(spec=DUAL, ours=True, annotations={KUBE_VIP_ADDRESSES: ADDRESS}),
        False,
        "",
    ),
    "no node ports": (service(**NO_NODE_PORTS), False, ""),
    "no node ports, VM load balancer": (
        service(**NO_NODE_PORTS),
        True,
        f"allocateLoadBalancerNodePorts is false. Set it to true, or set annotation {WORKLOAD_TYPE} to cluster",
    ),
    "one node port, VM load balancer": (service(**ONE_NODE_PORT), True, ""),
}


@pytest.mark.parametrize(("requested", "is_vm", "text"), ROWS.values(), ids=ROWS.keys())
def test_unsupported(requested: Service, text: str, *, is_vm: bool) -> None:
    event = unsupported_reason(requested, is_vm=is_vm)
    assert (event is not None) is bool(text)
    if event is not None:
        assert (event.type, event.reason) == ("Warning", Reason.UNSUPPORTED)
        assert text in event.message
