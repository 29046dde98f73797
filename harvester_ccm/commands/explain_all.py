"""``explain`` without a name: the explanation of every Service and Node that is not fine, found as ``status`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import FILENAME, NAMESPACE, Call, harvester_namespace
from harvester_ccm.commands.clusters import Clusters, open_clusters, read_inventory
from harvester_ccm.commands.explain_node import NodeReport, report_live, report_node, with_stand_ins
from harvester_ccm.commands.explain_service import ServiceReport, report_service, view_of
from harvester_ccm.commands.files import read_files
from harvester_ccm.commands.inventory import Inventory, ListedNodes
from harvester_ccm.commands.status_lists import known_from
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import Node
from harvester_ccm.status.document import NodeStatus, ServiceStatus
from harvester_ccm.status.report import look

Reports = tuple[Sequence[ServiceReport], Sequence[NodeReport]]


def explain_all(call: Call) -> int:
    """Explain all that is not fine and return the exit code."""
    files = call.flags.words(FILENAME.name)
    services, nodes = _from_files(call, files) if files else asyncio.run(_from_clusters(call))
    if call.output.scripted:
        documents = {"services": [one.document() for one in services], "nodes": [one.document() for one in nodes]}
        call.output.document(documents)
    else:
        for text in (*(one.text() for one in services), *(one.text() for one in nodes)):
            call.output.answer({}, text=text)
            call.output.line()
        if not services and not nodes:
            call.output.line("All Services and Nodes are well; name one to have it explained: --help shows how.")
    return EXIT_PROBLEMS if services or nodes else EXIT_OK


async def _from_clusters(call: Call) -> Reports:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        services, nodes = _wrong(call, inventory, clusters.harvester.namespace, datetime.now(UTC))
        return services, await _nodes_live(nodes, inventory, clusters, call)


async def _nodes_live(nodes: Sequence[Node], inventory: Inventory, clusters: Clusters, call: Call) -> list[NodeReport]:
    # One after the other: each may ask many guest agents.
    return [await report_live(one, inventory, clusters, call.settings) for one in nodes]


def _from_files(call: Call, files: tuple[str, ...]) -> Reports:
    contents = read_files(files, namespace=harvester_namespace(call))
    inventory = with_stand_ins(contents.inventory)
    services, nodes = _wrong(call, inventory, contents.namespace, contents.taken or datetime.now(UTC))
    store = ListedNodes(inventory, ClusterIdentity.of(call.settings, contents.namespace))
    return services, [report_node(one, store, call.settings, live_get=None) for one in nodes]


def _wrong(call: Call, inventory: Inventory, namespace: str, now: datetime) -> tuple[list[ServiceReport], list[Node]]:
    """Return the explanations of the Services that are not fine, and the Nodes that are not."""
    view = view_of(call, inventory, namespace, now=now)
    lines = [one for one in look(known_from(call, inventory, namespace, now)) if _is_wrong(one)]
    asked = call.flags.text(NAMESPACE.name)
    named = [one for one in lines if isinstance(one, ServiceStatus) and asked in ("", one.namespace)]
    services = [inventory.service(one.key) for one in named]
    # Nodes are in no namespace.
    nodes = [] if asked else [inventory.node(one.name) for one in lines if isinstance(one, NodeStatus)]
    reports = [report_service(one, inventory, view) for one in services if one is not None]
    return reports, [one for one in nodes if one is not None]


def _is_wrong(line: object) -> bool:
    return isinstance(line, ServiceStatus | NodeStatus) and line.wrong
