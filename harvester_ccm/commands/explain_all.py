"""``explain`` without a name: the explanation of every Service and Node that is not fine, found as ``status`` does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import NAMESPACE, Call
from harvester_ccm.commands.clusters import Clusters, open_clusters, read_inventory
from harvester_ccm.commands.explain_node import NodeReport, report_live
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Document, hanging
from harvester_ccm.commands.service_report import ServiceReport, report_service
from harvester_ccm.commands.service_view import view_of
from harvester_ccm.commands.status_document import NodeLine, ServiceLine
from harvester_ccm.commands.status_report import lines_of
from harvester_ccm.commands.status_view import counted
from harvester_ccm.config import NODE_CONTROLLER, SERVICE_CONTROLLER
from harvester_ccm.model.core import Node
from harvester_ccm.redaction import inert


class _Found(Struct, frozen=True):
    """What is not fine, and what that can be said of."""

    services: Sequence[ServiceReport]
    nodes: Sequence[NodeReport]
    problems: tuple[str, ...]
    """What could not be read without which nobody knows whether all is well."""
    assumptions: tuple[str, ...]
    blind: bool = False
    """Whether nothing is known of Harvester: of each Service and Node there is the same to be said then."""

    @property
    def exit_code(self) -> int:
        return EXIT_PROBLEMS if self.services or self.nodes or self.problems else EXIT_OK

    def document(self) -> Document:
        """Return it for scripts; docs/reference/commands.md describes it."""
        return {
            "services": [one.document() for one in self.services],
            "nodes": [one.document() for one in self.nodes],
            "problems": list(self.problems),
            "assumptions": list(self.assumptions),
        }

    def sentences(self, looked_at: str) -> Iterator[str]:
        """Yield what people read besides the explanations; ``looked_at`` is what was looked at, or empty."""
        yield from (f"Problem: {one}" for one in self.problems)
        if self.blind and (self.services or self.nodes):
            services = [one.situation.service.metadata.key for one in self.services]
            nodes = [one.view.node.metadata.name for one in self.nodes]
            kinds = ("Service", services), ("Node", nodes)
            yield f"Waiting for that: {' and '.join(counted(kind, sorted(names)) for kind, names in kinds if names)}"
            return
        if self.services or self.nodes:
            # Each explanation says by itself what was assumed.
            return
        yield from (f"Note: {one}" for one in self.assumptions)
        if not looked_at:
            yield "Nothing was looked at: --controllers, or a namespace, leaves nothing to look at."
        elif not self.problems:
            yield f"All {looked_at} are well; name one to have it explained: --help shows how."


async def explain_all(call: Call) -> int:
    """Explain all that is not fine and return the exit code."""
    found = await _from_clusters(call)
    if call.output.scripted:
        call.output.document(found.document())
        return found.exit_code
    explained = (*(one.text() for one in found.services), *(one.text() for one in found.nodes))
    for text in () if found.blind else explained:
        call.output.answer({}, text=text)
        call.output.line()
    for sentence in found.sentences(_looked_at(call)):
        call.output.line(hanging(sentence, first="", width=call.output.width))
    return found.exit_code


def _looked_at(call: Call) -> str:
    """Return what is looked at with these flags; Nodes are in no namespace."""
    asked, controllers = call.flags.text(NAMESPACE.name), call.settings.controllers
    services = f"Services of namespace {asked}" if asked else "Services"
    titles = [services] if SERVICE_CONTROLLER in controllers else []
    if NODE_CONTROLLER in controllers and not asked:
        titles.append("Nodes")
    return " and ".join(titles)


def _found(call: Call, inventory: Inventory, services: Sequence[ServiceReport], nodes: Sequence[NodeReport]) -> _Found:
    assumptions = map(inert, (*call.settings.warnings, *inventory.assumptions))
    blind = inventory.harvester_away is not None
    return _Found(services, nodes, tuple(map(inert, inventory.lacking())), tuple(assumptions), blind)


async def _from_clusters(call: Call) -> _Found:
    async with open_clusters(call.settings, call.environment) as clusters:
        inventory = await read_inventory(clusters)
        services, nodes = _wrong(call, inventory)
        return _found(call, inventory, services, await _nodes_live(nodes, inventory, clusters, call))


async def _nodes_live(nodes: Sequence[Node], inventory: Inventory, clusters: Clusters, call: Call) -> list[NodeReport]:
    # One after the other: each may ask many guest agents.
    return [await report_live(one, inventory, clusters, call.settings) for one in nodes]


def _wrong(call: Call, inventory: Inventory) -> tuple[list[ServiceReport], list[Node]]:
    """Return the explanations of the Services that are not fine, and the Nodes that are not."""
    view = view_of(call, inventory)
    lines = [one for one in lines_of(inventory, view, call.settings) if _is_wrong(one)]
    asked = call.flags.text(NAMESPACE.name)
    named = [one for one in lines if isinstance(one, ServiceLine) and asked in ("", one.namespace)]
    services = [inventory.service(one.key) for one in named]
    # Nodes are in no namespace.
    nodes = [] if asked else [inventory.node(one.name) for one in lines if isinstance(one, NodeLine)]
    reports = [report_service(one, inventory, view) for one in services if one is not None]
    return reports, [one for one in nodes if one is not None]


def _is_wrong(line: object) -> bool:
    return isinstance(line, ServiceLine | NodeLine) and line.wrong
