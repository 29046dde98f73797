"""The backends of a VM load balancer, as far as Harvester tells: never a guess about a single one's health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, structs

from harvester_ccm.commands.clusters import Asked
from harvester_ccm.errors import CCMError, Forbidden, NotFound
from harvester_ccm.model.core import EndpointSlice
from harvester_ccm.model.harvester import LoadBalancer, VirtualMachineInstance
from harvester_ccm.names import VM_NAME
from harvester_ccm.plan.service.backends import NO_BACKEND
from harvester_ccm.plan.service.messages import backend_note

STAND_IN: Final = "dummy"
"""How the UID of the endpoint begins that Harvester puts in while no backend is ready; nobody has its address."""


class Backend(Struct, frozen=True):
    """One VM behind a load balancer."""

    address: str
    vm: str
    """Name of the VM; empty when it is not known."""
    ready: bool | None
    """Whether it gets traffic; None when that is not known."""

    @property
    def title(self) -> str:
        """Name and address."""
        return f"{self.vm} ({self.address})" if self.vm else self.address

    def health(self, *, checked: bool) -> str:
        """Return its health for people; ``checked``: by whether it answers Harvester's checks."""
        if self.ready is None:
            return "health not known"
        if not self.ready:
            return "not ready, gets no traffic"
        return "ready, answers the health check" if checked else "ready (its health is not checked)"


class BackendReport(Struct, frozen=True):
    """The VMs behind a load balancer."""

    selected: tuple[str, ...]
    """Names of the VMs that the load balancer selects."""
    found: tuple[Backend, ...]
    checked: bool
    """Whether Harvester checks their health; without it every one counts as ready."""
    unknown: str
    """Why the health of the single ones is not known; empty when it is."""
    none_because: str
    """Why no VM is selected; empty when some are."""
    problem: str
    """Why none of them gets traffic, by the load balancer's own condition; empty when some do."""

    def document(self) -> dict[str, object]:
        """Return the backends for scripts; ``ready`` is null where it is not known."""
        return {
            "selected": list(self.selected),
            "healthChecked": self.checked,
            "found": [structs.asdict(one) for one in self.found],
            "healthUnknown": self.unknown or None,
            "problem": self.problem or None,
        }

    def sentences(self) -> list[str]:
        """Return the backends for people."""
        if self.none_because:
            return [f"none: {self.none_because}"]
        lines = [f"selects the VMs {', '.join(self.selected) or '(none)'}"]
        lines += [f"{one.title}: {one.health(checked=self.checked)}" for one in self.found]
        if not self.found:
            lines.append("Harvester shows no backend")
        if self.problem:
            lines.append(self.problem)
        if self.unknown:
            lines.append(f"health of each backend: not known, {self.unknown}")
        return lines


def backends_of(
    load_balancer: LoadBalancer,
    vmis: Iterable[VirtualMachineInstance],
    endpoints: Asked[EndpointSlice],
    none_because: str,
) -> BackendReport:
    """Return the backends of a VM load balancer, whose EndpointSlice in Harvester is ``endpoints``.

    ``none_because`` says why no node may get traffic, where that is so.
    """
    spec, present = load_balancer.spec, endpoints.answer
    names = {nic.ip_address: one.metadata.name for one in vmis for nic in one.interfaces if nic.ip_address}
    selected = tuple((spec.backend_server_selector or {}).get(VM_NAME) or ())
    note = backend_note(load_balancer)
    found = tuple(Backend(address, names.get(address, ""), None) for address in sorted(load_balancer.backends))
    return BackendReport(
        selected=selected,
        found=_endpoints(present, names) if present else found,
        checked=spec.health_check is not None and spec.health_check.port > 0,
        unknown=_reason(load_balancer, endpoints.error) if endpoints.error else "",
        none_because=none_because if selected in ((), (NO_BACKEND,)) else "",
        problem=note.message if note else "",
    )


def _endpoints(present: EndpointSlice, names: Mapping[str, str]) -> tuple[Backend, ...]:
    """Return the backends of the slice; ``names`` are those of the VMs, by address."""
    found = []
    for one in present.endpoints or ():
        target = one.target_ref
        if target is not None and target.uid.startswith(STAND_IN):
            continue
        address = one.addresses[0] if one.addresses else ""
        name = (target.name if target else "") or names.get(address, "")
        found.append(Backend(address, name, (one.conditions or {}).get("ready") is not False))
    return tuple(sorted(found, key=lambda one: (one.vm, one.address)))


def _reason(load_balancer: LoadBalancer, error: CCMError) -> str:
    namespace = load_balancer.metadata.namespace
    match error:
        case Forbidden():
            return f"not visible to this credential (optional right: get endpointslices in namespace {namespace})"
        case NotFound():
            return "because Harvester has not made an EndpointSlice for the load balancer yet"
    return f"because its EndpointSlice cannot be read: {error}"
