"""Prints the observed state of a Service or a Node, what is wrong with it, and the next write of the controller.

A write is printed with the fields that it changes. Nothing is written; a load balancer that would be created is sent to
Harvester as a dry run. Use the flags of the controller: the same functions decide here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, flag, refuse
from harvester_ccm.commands.clusters import open_clusters, read_clusters
from harvester_ccm.commands.explain_node import explain_node
from harvester_ccm.commands.explain_service import explain_service

NAMESPACE: Final = flag(
    "namespace",
    "Namespace of the Service. Without it: the one in front of its name, else that of the kubeconfig's context.",
    shorthand="n",
)
_KINDS: Final = {
    **dict.fromkeys(("service", "services", "svc"), "service"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
}
"""The names of kubectl for a kind."""


async def _explain(call: Call) -> int:
    kind, namespace, name = read_target(call.arguments, call.flags[NAMESPACE.name])
    async with open_clusters(call) as (guest, harvester):
        store = await read_clusters(call.settings, guest, harvester)
        if kind == "node":
            document, is_well = await explain_node(store, name, call.settings, harvester)
        else:
            key = f"{namespace or guest.namespace}/{name}"
            document, is_well = await explain_service(store, key, call.settings, harvester)
    call.output.answer(document)
    return EXIT_OK if is_well else EXIT_PROBLEMS


def read_target(words: Sequence[str], namespace: str) -> tuple[str, str, str]:
    """Return kind, namespace (empty for that of the kubeconfig) and name; ``namespace`` is the value of ``-n``.

    Raises ConfigurationError if the words do not name one object.

    >>> read_target(["svc/web"], "shop")
    ('service', 'shop', 'web')
    >>> read_target(["service", "shop/web"], "")
    ('service', 'shop', 'web')
    """
    first, slash, rest = words[0].partition("/") if words else ("", "", "")
    kind, names = _KINDS.get(first.lower(), ""), [rest, *words[1:]] if slash else list(words[1:])
    if not kind or len(names) != 1:
        raise refuse(f"expected svc/NAME -n NAMESPACE or node/NAME, got {' '.join(words) or 'nothing'}")
    home, _, name = names[0].rpartition("/")
    if not name or "/" in home or (kind == "node" and home) or (home and namespace and home != namespace):
        raise refuse(f"{names[0]!r} is not the name of one {kind.capitalize()}")
    return kind, home or namespace, name


MANUAL: Final = Manual(
    meaning=__doc__,
    usages=("explain svc/NAME [-n NAMESPACE] [flags]", "explain node/NAME [flags]"),
    examples=(
        ("Why does Service web in namespace shop have no address?", "explain svc/web -n shop"),
        ("Which VM is Node w1, and why does it have its addresses?", "explain node/w1"),
    ),
    own=(OUTPUT, NAMESPACE),
    action=_explain,
    words=("svc", "service", "node"),
)
