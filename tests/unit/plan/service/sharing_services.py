"""A primary, shop/web, and a Service that shares its address, shop/api."""

from __future__ import annotations

from typing import Any

from harvester_ccm.kube_vip_names import KUBE_VIP_ADDRESSES, KUBE_VIP_IGNORE
from harvester_ccm.names import PRIMARY_SERVICE, PRIMARY_SERVICE_LABEL
from tests.worlds.builders import ADDRESS, service

OTHER = "192.168.100.99"
WITHDRAWN = {KUBE_VIP_ADDRESSES: ""}
HELD = {**WITHDRAWN, KUBE_VIP_IGNORE: "true"}
HANDS_OFF = HELD
NAMES_WEB = {PRIMARY_SERVICE: "shop/web"}
LABEL = {PRIMARY_SERVICE_LABEL: "shop.web"}
API = [{"name": "http", "port": 8080, "protocol": "TCP", "nodePort": 32080}]


def asking(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    """Return shop/api, which names shop/web as its primary."""
    more = {"name": "api", "uid": "api", "ports": API, **more}
    return service(**more, annotations={**NAMES_WEB, **(annotations or {})})


def sharing(annotations: dict[str, str] | None = None, **more: Any) -> Any:
    """Return shop/api as it is when it shares the address of shop/web."""
    own = {KUBE_VIP_ADDRESSES: ADDRESS, **(annotations or {})}
    return asking(own, **{"labels": LABEL, "ours": True, "address": ADDRESS, **more})


def hosted_primary() -> Any:
    return service(annotations=HANDS_OFF, ours=True, address=ADDRESS)
