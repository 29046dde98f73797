"""A status out of lists of both clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from harvester_ccm.commands.call import Call
from harvester_ccm.commands.clusters import Asked, Clusters, ask, read_inventory
from harvester_ccm.commands.service_view import view_of
from harvester_ccm.commands.status_document import Leader, Server, Status
from harvester_ccm.commands.status_report import left_alone, problems_of_servers, report
from harvester_ccm.config import LeaderElectionSettings
from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.clock import time_text
from harvester_ccm.kube.tokens import FixedToken, token_account, token_end
from harvester_ccm.model.core import LEASES, Lease
from harvester_ccm.model.harvester import INSTANCES, IP_POOLS, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.redaction import inert

STALE_LEASE: Final = 90.0
"""Seconds without a renewal after which nobody can hold the Lease, also where two clocks differ by a minute."""


async def status_from_lists(call: Call, clusters: Clusters) -> Status:
    """Return what lists of both clusters come to. Raises CCMError where the guest's cannot be read."""
    inventory, lease, pools = await asyncio.gather(
        read_inventory(clusters),
        _read_lease(call.settings.leader_election, clusters.guest),
        ask(clusters.harvester.list(IP_POOLS)),
    )
    now = inventory.taken
    found = (inventory.problems.get(one.plural) for one in (LOAD_BALANCERS, VIRTUAL_MACHINES, INSTANCES))
    error = next((one for one in found if one is not None), None)
    servers = (_server(clusters.guest, None), _server(clusters.harvester, error))
    if lease.error is not None:
        inventory = inventory.assuming(f"who leads is not known, because the Lease cannot be read ({lease.error})")
    frame = Status(
        observed=time_text(now),
        cluster=call.settings.harvester.cluster_name,
        namespace=inventory.namespace,
        leader=_leader(lease.answer) if lease.answer is not None else None,
        servers=servers,
        problems=(*_lease_problems(lease.answer, now), *problems_of_servers(error, servers, now)),
        assumptions=tuple(map(inert, (*call.settings.warnings, *left_alone(call.settings), *inventory.assumptions))),
    )
    # The usual cloud-config may not read them.
    return report(frame, view_of(call, inventory), call.settings, pools.answer.items if pools.answer else ())


async def _read_lease(election: LeaderElectionSettings, guest: ApiClient) -> Asked[Lease]:
    """Return the Lease, an empty one where there is none."""
    if not election.enabled:
        return Asked()
    asked = await ask(guest.get(LEASES, election.name, namespace=election.namespace))
    return Asked(answer=Lease()) if isinstance(asked.error, NotFound) else asked


def _leader(lease: Lease) -> Leader:
    return Leader(identity=inert(lease.spec.holder_identity or ""), since=inert(lease.spec.acquire_time or ""))


def _lease_problems(lease: Lease | None, now: datetime) -> Iterator[str]:
    """Yield what the Lease says of a program that does not run."""
    if lease is None:
        return
    if not lease.spec.holder_identity:
        yield "Nobody holds the Lease: the program does not run, or has not started yet. Look at its pods and their log"
        return
    try:
        idle = (now - datetime.fromisoformat(lease.spec.renew_time or "")).total_seconds()
    except (ValueError, TypeError):
        return
    if idle >= STALE_LEASE:
        yield (
            f"The Lease was renewed {idle:.0f} s ago, by the clock of this machine: its holder does not run any more. "
            "Look at the pods of the program and their log"
        )


def _server(client: ApiClient, error: CCMError | None) -> Server:
    source = client.credentials.token
    # A renewed token does not expire.
    token = source.get() if isinstance(source, FixedToken) else None
    end = token_end(token)
    return Server(
        cluster=client.cluster,
        url=inert(client.credentials.server),
        problem=inert(str(error)) if error is not None else "",
        token_expires=time_text(end) if end is not None else "",
        account=token_account(token),
    )
