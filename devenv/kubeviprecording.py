"""What a recording contains: for each step, what changed on the Services and on the node.

Order within an object counts, timing does not. Leased addresses and hardware addresses are replaced by constant texts.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

from devenv import player
from devenv.announcement import HARDWARE_ANNOTATION, HOST_ANNOTATION, REQUESTED_ANNOTATION
from devenv.watch import Document, annotations_of

WRITTEN: Final = (HOST_ANNOTATION, REQUESTED_ANNOTATION, HARDWARE_ANNOTATION)
"""Annotations that kube-vip writes."""


class Recorder(player.Recorder):
    """Notes the changes of Services and of the addresses on the node."""

    parts = ("services", "addresses")

    def __init__(self, leases: Collection[str]) -> None:
        """``leases`` are the addresses of the DHCP server."""
        super().__init__()
        self._leased_from = leases
        self._on_node: set[str] = set()
        self._leases: dict[str, str] = {}

    def note_service(self, document: Document, *, is_deleted: bool = False) -> None:
        """Note a state of a Service."""
        self._note("services", document["metadata"]["name"], "deleted" if is_deleted else self._seen_of(document))

    def note_addresses(self, addresses: Iterable[str]) -> None:
        """Note the addresses on the node."""
        now = {self._lease_as_text(address) for address in addresses}
        for address in sorted(self._on_node ^ now):
            self._add("addresses", address, "appears" if address in now else "disappears")
        self._on_node = now

    def result(self) -> list[dict[str, Any]]:
        """Return the steps."""
        return self._steps

    def _seen_of(self, document: Document) -> dict[str, Any]:
        annotations = annotations_of(document)
        found = {key: self._lease_as_text(annotations[key]) for key in WRITTEN if key in annotations}
        if found.get(HARDWARE_ANNOTATION):
            found[HARDWARE_ANNOTATION] = "hardware address"
        ingress = ((document.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        status = [
            {
                "ip": self._lease_as_text(entry.get("ip", "")),
                "ports": [f"{port['port']}/{port['protocol']}" for port in entry.get("ports") or ()],
            }
            for entry in ingress
        ]
        return {"annotations": found, "status": status}

    def _lease_as_text(self, address: str) -> str:
        if address not in self._leased_from:
            return address
        return self._leases.setdefault(address, f"lease {len(self._leases) + 1}")
