"""What a recording contains: for each step, what changed on the Services and on the node.

Order within an object counts, timing does not. Leased addresses and hardware addresses are replaced by constant texts.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from devenv.announcement import HARDWARE_ANNOTATION, HOST_ANNOTATION, REQUESTED_ANNOTATION
from devenv.kubevipscenarios import Scenario
from devenv.player import Step
from devenv.watch import Document, annotations_of

WRITTEN: Final = (HOST_ANNOTATION, REQUESTED_ANNOTATION, HARDWARE_ANNOTATION)
"""Annotations that kube-vip writes."""


class Recorder:
    """Notes the changes after each step of a scenario."""

    def __init__(self, scenario: Scenario, leases: Collection[str]) -> None:
        """``leases`` are the addresses of the DHCP server."""
        self._scenario = scenario
        self._leased_from = leases
        self._steps: list[dict[str, Any]] = []
        self._services: dict[str, Any] = {}
        """What was last seen of each Service."""
        self._on_node: set[str] = set()
        self._leases: dict[str, str] = {}
        self.changes = 0
        """Number of changes so far."""

    def begin(self, steps: Sequence[Step]) -> None:
        """Begin steps that are taken at once; everything that is noted from now on belongs to them."""
        name = ", ".join(map(str, steps))
        self._steps.append({"step": name, "services": {}, "addresses": {}})

    def note_service(self, document: Document, *, is_deleted: bool = False) -> None:
        """Note a state of a Service."""
        name = document["metadata"]["name"]
        seen = "deleted" if is_deleted else self._seen_of(document)
        if self._services.get(name) == seen:
            return
        self._services[name] = seen
        self._steps[-1]["services"].setdefault(name, []).append(seen)
        self.changes += 1

    def note_addresses(self, addresses: Iterable[str]) -> None:
        """Note the addresses on the node."""
        now = {self._lease_as_text(address) for address in addresses}
        for address in sorted(self._on_node ^ now):
            change = "appears" if address in now else "disappears"
            self._steps[-1]["addresses"].setdefault(address, []).append(change)
            self.changes += 1
        self._on_node = now

    def result(self) -> dict[str, Any]:
        """Return the recording."""
        return {"scenario": self._scenario.name, "steps": self._steps}

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
