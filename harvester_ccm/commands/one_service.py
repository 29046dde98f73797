"""What there is to explain one Service with: all that the running program has, or what its user may read.

Who may not list the Services and Nodes of the cluster, or has no cloud-config, is told what follows for this Service,
and what is not known; nothing is concluded from what is missing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from harvester_ccm.commands.clusters import (
    Clusters,
    ask,
    in_both,
    read_guest,
    read_harvester,
    with_assumptions,
    with_note,
)
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.errors import CCMError, Forbidden, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import NODES, SERVICES, Service
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.plan.service.request import primary_reference

NOT_ASKED: Final = CCMError("it was not asked, because no --cloud-config was given")
"""Why nothing is known of Harvester."""


async def read_for(clusters: Clusters, key: str) -> Inventory:
    """Return what is known of a Service, and of all that it depends on. Raises the error of what it needs."""
    questions = _read_guest_for(clusters.guest, key), read_harvester(clusters.harvester)
    guest, harvester = await asyncio.gather(*questions, return_exceptions=True)
    if isinstance(harvester, BaseException):
        raise harvester
    if isinstance(guest, BaseException):
        raise with_note(guest, harvester) if isinstance(guest, CCMError) else guest
    return with_assumptions(in_both(guest, harvester))


async def read_without_harvester(guest: ApiClient, key: str) -> Inventory:
    """Return what is known of a Service in its own cluster. Raises the error of what it needs."""
    nothing = dict.fromkeys((LOAD_BALANCERS.plural, VIRTUAL_MACHINES.plural, INSTANCES.plural), NOT_ASKED)
    return in_both(await _read_guest_for(guest, key), Inventory(problems=nothing))


async def _read_guest_for(guest: ApiClient, key: str) -> Inventory:
    found = await read_guest(guest)
    refused = found.problems.get(SERVICES.plural)
    if isinstance(refused, Forbidden):
        problems = {plural: error for plural, error in found.problems.items() if plural != SERVICES.plural}
        services = await _named(guest, key)
        found = replace(found, services=services, problems=problems).assuming(
            "other Services may not be listed: whether they share its address, or ask for the same ports of it, is not "
            f"known ({refused})"
        )
    elif refused is not None:
        raise refused
    hidden = found.problems.get(NODES.plural)
    if isinstance(hidden, Forbidden):
        return found.assuming(f"Nodes may not be read: which of them get traffic is not known ({hidden})")
    if hidden is not None:
        raise hidden
    return found


async def _named(guest: ApiClient, key: str) -> tuple[Service, ...]:
    """Return a Service, and the one whose address it shares; without those that there are not."""
    service = await _get(guest, key)
    primary = primary_reference(service) if service is not None else None
    if service is None or not primary or "/" not in primary:
        return (service,) if service is not None else ()
    try:
        other = await _get(guest, primary)
    except CCMError as error:
        raise CCMError(f"Service {key} shares the address of {primary}, which cannot be read: {error}") from error
    return (service, other) if other is not None else (service,)


async def _get(guest: ApiClient, key: str) -> Service | None:
    namespace, _, name = key.partition("/")
    asked = await ask(guest.get(SERVICES, name, namespace=namespace))
    if asked.error is not None and not isinstance(asked.error, NotFound):
        raise asked.error
    return asked.answer
