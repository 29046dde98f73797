"""``status``: lists both clusters and prints the state of every object, problems first. Reads only."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import Call, Manual, expect_arguments, flag, refuse, switch
from harvester_ccm.commands.clusters import open_clusters
from harvester_ccm.commands.status_document import Status
from harvester_ccm.commands.status_lists import status_from_lists
from harvester_ccm.commands.status_view import status_lines
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.clock import loop_time
from harvester_ccm.redaction import redact_text

OUTPUT: Final = flag(
    "output",
    "Form of the answer: text or wide for people, json or yaml for scripts. wide has all columns and all objects.",
    default="text",
    shorthand="o",
)
NAMESPACE: Final = flag("namespace", "Only Services of this namespace of the guest cluster.", shorthand="n")
ALL_NAMESPACES: Final = switch(
    "all-namespaces", "Services of all namespaces, whatever --namespace says.", shorthand="A"
)
WATCH: Final = switch("watch", "Look again and again and show it in place, until Ctrl-C.", shorthand="w")
WATCH_SECONDS: Final = 2.0
"""Pause between two looks."""
WATCH_SHARE: Final = 4.0
"""It is at least so many times as long as the look took: watching must not be a load."""
FORMS: Final = ("text", "wide", "json", "yaml")


async def _status(call: Call) -> int:
    expect_arguments(call, ())
    if call.flags[WATCH.name]:
        await _watch(call)
    status = await _read(call)
    _show(call, status)
    return EXIT_PROBLEMS if status.wrong else EXIT_OK


async def _watch(call: Call) -> NoReturn:
    form = call.flags[OUTPUT.name]
    if form not in ("text", "wide") or not call.output.is_terminal:
        raise refuse("--watch is for people at a terminal; scripts call again and again with -o json")
    while True:
        began = loop_time()
        try:
            status = await _read(call)
            lines = list(status_lines(status, width=call.output.width, wide=form == "wide"))
        except CCMError as error:
            lines = [f"{datetime.now(UTC):%H:%M:%S} UTC: {redact_text(str(error))}"]
        call.output.screen(lines)
        await asyncio.sleep(max(WATCH_SECONDS, WATCH_SHARE * (loop_time() - began)))


async def _read(call: Call) -> Status:
    """Return the status of the namespace that was asked for; Nodes and the like are in none."""
    async with open_clusters(call.settings, call.environment) as clusters:
        status = await status_from_lists(call, clusters)
    namespace = call.flags[NAMESPACE.name]
    if not namespace or call.flags[ALL_NAMESPACES.name]:
        return status
    kept = tuple(one for one in status.services if one.namespace == namespace)
    return msgspec.structs.replace(status, services=kept, nodes=None, left_over=None, pools=())


def _show(call: Call, status: Status) -> None:
    form = call.flags[OUTPUT.name]
    document = msgspec.to_builtins(status)
    match form:
        case "json" | "yaml":
            call.output.document(document)
        case _:
            for line in status_lines(status, width=call.output.width, wide=form == "wide"):
                call.output.line(line)


MANUAL: Final = Manual(
    usages=("status [-n NAMESPACE] [-o wide|json|yaml] [--watch]",),
    meaning="""
        Shows the whole at one look: who leads, both API servers, every Service of type LoadBalancer, the Nodes and
        their VMs, load balancers without a Service, and IP pools. What is wrong comes first, with the reason and the
        remedy that the Events and the condition LoadBalancerReady say. Nothing is written.

        Exit codes: 0 all is well, 1 something is wrong, or a cluster could not be asked, 2 the command line cannot be
        used.
    """,
    examples=(
        ("The whole at one look, again and again.", "status --watch"),
        ("Services of one namespace, with all columns.", "status -n shop -o wide"),
    ),
    own=(OUTPUT, NAMESPACE, ALL_NAMESPACES, WATCH),
    action=_status,
    forms=FORMS,
)
