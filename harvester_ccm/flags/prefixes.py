"""The prefix of labels that a VM may give to its Node."""

from __future__ import annotations

import re
from typing import Final

from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags.values import go_quote

_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
RESERVED_DOMAINS: Final = (
    "kubernetes.io",
    "k8s.io",
    "kubevirt.io",
    "harvesterhci.io",
    "cattle.io",
    "rancher.io",
    "kube-vip.io",
)
"""Keys in them, and below them, decide what a Node may do and what is done to it: roles, restrictions, records."""


def parse_node_label_prefix(value: str) -> str:
    """Return the prefix with its slash, an empty one for an empty value. Raises ConfigurationError."""
    domain = value.strip().removesuffix("/")
    if not domain:
        return ""
    fault = f"invalid configuration for --node-label-prefix: {go_quote(value)}"
    if not _DOMAIN.fullmatch(domain) or len(domain) > 253:
        raise ConfigurationError([f"{fault} is no domain in lower case, expected one such as rack.example.com"])
    reserved = next((one for one in RESERVED_DOMAINS if f".{domain}".endswith(f".{one}")), None)
    if reserved is not None:
        raise ConfigurationError([f"{fault} belongs to {reserved}, whose keys a VM may not set; name another domain"])
    return f"{domain}/"
