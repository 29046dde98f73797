"""``explain``: what a Service or a Node is, what would be done about it now and why. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from harvester_ccm.commands import EXIT_OK
from harvester_ccm.commands.call import (
    FILENAME,
    NAMESPACE,
    OUTPUT,
    WAITED,
    Call,
    Manual,
    expect_arguments,
    refuse,
)
from harvester_ccm.commands.explain_all import explain_all
from harvester_ccm.commands.explain_mapping import explain_mapping
from harvester_ccm.commands.explain_node import explain_node
from harvester_ccm.commands.explain_service import explain_service
from harvester_ccm.flags import FlagValues
from harvester_ccm.flags.cluster_name import read_cluster_name
from harvester_ccm.plan.service.ownership import load_balancer_name

SERVICE: Final = "service"
NODE: Final = "node"
NAD_MAPPING: Final = "nad-mapping"
LB_NAME: Final = "lb-name"


def _explain(call: Call) -> int:
    kind = call.arguments[0] if call.arguments else ""
    explanation = _EXPLANATIONS.get(kind) if kind else explain_all
    if explanation is None:
        raise refuse(f"{kind!r} cannot be explained; expected one of: {', '.join(_EXPLANATIONS)}")
    if NAMESPACE.name in call.flags.explicit and not call.flags.words(FILENAME.name):
        raise refuse("--namespace goes with -f; the running program's namespace is that of the cloud-config's context")
    return explanation(call)


def _explain_name(call: Call) -> int:
    cluster, namespace, name, uid = expect_arguments(call, ["CLUSTER", "NAMESPACE", "NAME", "UID"], skip=1)
    result = load_balancer_name(read_cluster_name(cluster)[0], namespace, name, uid)
    if call.output.as_json:
        call.output.document({"name": result})
    else:
        call.output.line(result)
    return EXIT_OK


def _is_offline(flags: FlagValues) -> bool:
    asks_clusters = flags.arguments[:1] in ((), (SERVICE,), (NODE,), (NAD_MAPPING,))
    return bool(flags.words(FILENAME.name)) or not asks_clusters


def _is_scripted(flags: FlagValues) -> bool:
    return bool(flags.words(FILENAME.name)) and flags.arguments[:1] == (SERVICE,)


_EXPLANATIONS: Final[Mapping[str, Callable[[Call], int]]] = {
    SERVICE: explain_service,
    NODE: explain_node,
    NAD_MAPPING: explain_mapping,
    LB_NAME: _explain_name,
}

MANUAL: Final = Manual(
    usages=(
        "explain [-f FILE] [flags]",
        "explain service NAMESPACE/NAME [flags]",
        "explain service -f FILE [NAMESPACE/NAME] [flags]",
        "explain node NAME [flags]",
        "explain node -f FILE [NAME] [flags]",
        "explain nad-mapping [-f FILE] [flags]",
        "explain lb-name CLUSTER NAMESPACE NAME UID",
    ),
    meaning="""
        Says what a Service or a Node is, what would be done about it now and why, and what it waits for. Nothing is
        written. Give the flags of the running program: the same functions decide here. Without a name, all that is not
        fine is explained.

        With -f no cluster is asked: the objects come from files, so that a case is replayed from its YAML. What the
        files leave out is listed among the suppositions.

        Exit codes: 0 all is well, 1 something is refused or a warning would be told, 2 the command line or a file
        cannot be used.
    """,
    own=(OUTPUT, FILENAME, NAMESPACE, WAITED),
    action=_explain,
    offline=_is_offline,
    scripted=_is_scripted,
)
