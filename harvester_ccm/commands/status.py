"""``status``: lists both clusters and prints the state of every object, problems first. Only reads."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments, flag, refuse, switch
from harvester_ccm.commands.clusters import Asked, ask, open_clusters, read_inventory
from harvester_ccm.commands.service_view import view_of
from harvester_ccm.commands.status_report import (
    Leader,
    Server,
    Status,
    harvester_error,
    lease_problems,
    report,
    server_problems,
)
from harvester_ccm.commands.status_view import status_lines
from harvester_ccm.config import LeaderElectionSettings
from harvester_ccm.errors import CCMError, NotFound
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.flowcontrol import loop_time, time_text
from harvester_ccm.kube.tokens import FixedToken, token_account, token_end
from harvester_ccm.model.core import LEASES, Lease
from harvester_ccm.redaction import inert, redact_text

NAMESPACE: Final = flag("namespace", "Only Services of this namespace of the guest cluster.", shorthand="n")
WATCH: Final = switch("watch", "List again and show the result in place, until Ctrl-C.", shorthand="w")
WATCH_SECONDS: Final = 2.0
"""Minimum time between two lists."""
WATCH_SHARE: Final = 4.0
"""The time between two lists, as a multiple of the time that one takes."""


async def _status(call: Call) -> int:
    expect_arguments(call, ())
    if call.flags[WATCH.name]:
        await _watch(call)
    status = await _read(call)
    if call.output.scripted:
        call.output.document(msgspec.to_builtins(status))
    else:
        for line in status_lines(status, width=call.output.width):
            call.output.line(line)
    return EXIT_PROBLEMS if status.problems else EXIT_OK


async def _watch(call: Call) -> NoReturn:
    if call.output.scripted or not call.output.is_terminal:
        raise refuse("--watch needs a terminal; in a script, repeat status -o json")
    while True:
        began = loop_time()
        try:
            lines = list(status_lines(await _read(call), width=call.output.width))
        except CCMError as error:
            lines = [f"{datetime.now(UTC):%H:%M:%S} UTC: {redact_text(str(error))}"]
        call.output.screen(lines)
        await asyncio.sleep(max(WATCH_SECONDS, WATCH_SHARE * (loop_time() - began)))


async def _read(call: Call) -> Status:
    settings = call.settings
    async with open_clusters(settings, call.environment) as clusters:
        inventory, lease = await asyncio.gather(
            read_inventory(clusters), _read_lease(settings.leader_election, clusters.guest)
        )
        error = harvester_error(inventory.problems)
        servers = (_server(clusters.guest, None), _server(clusters.harvester, error))
    if lease.error is not None:
        inventory = msgspec.structs.replace(inventory, problems={**inventory.problems, LEASES.plural: lease.error})
    held = lease.answer.spec if lease.answer is not None else None
    frame = Status(
        observed=time_text(inventory.taken),
        cluster=settings.harvester.cluster_name,
        namespace=inventory.namespace,
        leader=Leader(identity=inert(held.holder_identity or ""), since=inert(held.acquire_time or ""))
        if held
        else None,
        servers=servers,
        problems=(
            *lease_problems(lease.answer, inventory.taken),
            *server_problems(error, servers, inventory.taken),
        ),
    )
    return report(frame, view_of(call, inventory), settings, namespace=call.flags[NAMESPACE.name])


async def _read_lease(election: LeaderElectionSettings, guest: ApiClient) -> Asked[Lease]:
    """Return the Lease, an empty one if it does not exist."""
    if not election.enabled:
        return Asked()
    asked = await ask(guest.get(LEASES, election.name, namespace=election.namespace))
    return Asked(answer=Lease()) if isinstance(asked.error, NotFound) else asked


def _server(client: ApiClient, error: CCMError | None) -> Server:
    source = client.credentials.token
    # Any other token is renewed before it expires.
    token = source.get() if isinstance(source, FixedToken) else None
    end = token_end(token)
    return Server(
        cluster=client.cluster,
        url=inert(client.credentials.server),
        problem=inert(str(error)) if error is not None else "",
        token_expires=time_text(end) if end is not None else "",
        account=token_account(token),
    )


MANUAL: Final = Manual(
    usages=("status [-n NAMESPACE] [-o json|yaml] [--watch]",),
    meaning="""
        Prints the leader, both API servers, all problems with their reason and message, every Service of type
        LoadBalancer, and the Nodes with their VMs. Reasons and messages are those of the Events and of the condition
        LoadBalancerReady. Nothing is written.

        Exit codes: 0 all is well, 1 there is a problem, or a cluster cannot be read, 2 the command line cannot be used.
    """,
    examples=(
        ("The whole status, updated until Ctrl-C.", "status --watch"),
        ("Services of one namespace, for a script.", "status -n shop -o json"),
    ),
    own=(OUTPUT, NAMESPACE, WATCH),
    action=_status,
)
