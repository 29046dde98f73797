"""``explain``: what a Service or a Node is, what would be done about it now and why. Reads only."""

from __future__ import annotations

from typing import Final

from harvester_ccm.commands.call import OUTPUT, Call, Manual, flag
from harvester_ccm.commands.explain_node import explain_node
from harvester_ccm.commands.explain_service import explain_service
from harvester_ccm.commands.targets import NODE, SERVICE, kind_of, read_target

NAMESPACE: Final = flag(
    "namespace",
    "Namespace of the Service. Without it: the one in front of its name, else that of the kubeconfig's context.",
    shorthand="n",
)


async def _explain(call: Call) -> int:
    target = read_target(call.arguments, namespace=call.flags[NAMESPACE.name])
    report = await (explain_service if target.kind == SERVICE else explain_node)(call, target)
    call.output.answer(report.document(), text=report.text())
    return report.exit_code


MANUAL: Final = Manual(
    usages=("explain svc/NAME [-n NAMESPACE] [flags]", "explain node/NAME [flags]"),
    examples=(
        ("Why has Service web in namespace shop no address?", "explain svc/web -n shop"),
        ("Which VM is Node w1, and where are its addresses from?", "explain node/w1"),
    ),
    meaning="""
        Says what a Service or a Node is, what would be done about it now and why, and what it waits for. Nothing is
        written. Give the flags of the running program: the same functions decide here. The command status names
        the Services and Nodes that are not fine.

        To explain a Service of one's own, get on Services in its namespace is enough: without a cloud-config it is said
        what the running program has said of it, and since when.

        Exit codes: 0 all is well, 1 something is refused, a warning would be told or a cluster could not be asked, 2
        the command line cannot be used.
    """,
    own=(OUTPUT, NAMESPACE),
    action=_explain,
    words=("svc", "service", NODE),
    # A Service has something to say without Harvester, too.
    offline=lambda flags: not flags.arguments or kind_of(flags.arguments[0]) != NODE,
)
