"""Annotations of a Service that kube-vip reads and writes; only ``plan.service.kube_vip`` reads and writes them."""

from __future__ import annotations

from typing import Final

from harvester_ccm.names import PREFIX, catalogued

KUBE_VIP_ADDRESSES: Final = catalogued(
    "kube-vip.io/loadbalancerIPs", "Service", "annotation", "both", value="address, `0.0.0.0` or empty",
    meaning="What kube-vip announces: the address, one from DHCP (`0.0.0.0`), or nothing (empty) while the Service "
    "waits.",
)  # fmt: skip
KUBE_VIP_INTERFACE: Final = catalogued(
    "kube-vip.io/serviceInterface", "Service", "annotation", "both", value="network device",
    meaning="Device in the nodes on which kube-vip announces the address of a Service with a network.",
)  # fmt: skip
KUBE_VIP_IGNORE: Final = catalogued(
    "kube-vip.io/ignore", "Service", "annotation", "written", value="`true`",
    meaning="Tells kube-vip in this cluster to leave a Service alone that waits for an address, or whose address "
    "Harvester announces.",
)  # fmt: skip
KUBE_VIP_HOST: Final = catalogued(
    "kube-vip.io/vipHost", "Service", "annotation", "read", writer="kube-vip", value="node name",
    meaning="The node that announces the address.",
)  # fmt: skip
KUBE_VIP_LEASE: Final = catalogued(
    "kube-vip.io/requestedIP", "Service", "annotation", "read", writer="kube-vip", value="address",
    meaning="The address that kube-vip has leased from DHCP.",
)  # fmt: skip

ENDPOINTS_TOUCHED: Final = catalogued(
    PREFIX + "touched", "EndpointSlice", "annotation", "written", value="version of the Service",
    meaning="Written to have kube-vip look at the Service again; says nothing else.",
)  # fmt: skip
