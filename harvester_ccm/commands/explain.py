"""``explain``: what a Service or a Node is, what would be done about it now and why. Reads only."""

from __future__ import annotations

from typing import Final

from harvester_ccm.commands import EXIT_OK
from harvester_ccm.commands.call import (
    NAMESPACE,
    OUTPUT,
    Call,
    Manual,
    expect_arguments,
)
from harvester_ccm.commands.explain_all import explain_all
from harvester_ccm.commands.explain_mapping import MappingReport, explain_mapping
from harvester_ccm.commands.explain_node import NodeReport, explain_node
from harvester_ccm.commands.explain_service import explain_service
from harvester_ccm.commands.service_report import ServiceReport
from harvester_ccm.commands.targets import NODE, SERVICE, kind_of, read_target
from harvester_ccm.flags import FlagValues
from harvester_ccm.flags.cluster_name import read_cluster_name
from harvester_ccm.plan.service.ownership import load_balancer_name

NAD_MAPPING: Final = "nad-mapping"
LB_NAME: Final = "lb-name"
_OTHERS: Final = (NAD_MAPPING, LB_NAME)


async def _explain(call: Call) -> int:
    if not call.arguments:
        return await explain_all(call)
    if call.arguments[0] == LB_NAME:
        return _explain_name(call)
    report = await _report(call)
    call.output.answer(report.document(), text=report.text())
    return report.exit_code


async def _report(call: Call) -> MappingReport | NodeReport | ServiceReport:
    if call.arguments[0] == NAD_MAPPING:
        return await explain_mapping(call)
    target = read_target(call.arguments, namespace=call.flags.text(NAMESPACE.name), others=_OTHERS)
    return await (explain_service if target.kind == SERVICE else explain_node)(call, target)


def _explain_name(call: Call) -> int:
    cluster, namespace, name, uid = expect_arguments(call, ["CLUSTER", "NAMESPACE", "NAME", "UID"], skip=1)
    result = load_balancer_name(read_cluster_name(cluster)[0], namespace, name, uid)
    if call.output.scripted:
        call.output.document({"name": result})
    else:
        call.output.line(result)
    return EXIT_OK


def _is_offline(flags: FlagValues) -> bool:
    word = flags.arguments[0] if flags.arguments else NAD_MAPPING
    # A Service has something to say without Harvester, too.
    return kind_of(word) == SERVICE or (kind_of(word) is None and word != NAD_MAPPING)


MANUAL: Final = Manual(
    usages=(
        "explain [flags]",
        "explain svc/NAME [-n NAMESPACE] [flags]",
        "explain node/NAME [flags]",
        "explain nad-mapping [flags]",
        "explain lb-name CLUSTER NAMESPACE NAME UID",
    ),
    examples=(
        ("What is not fine, and why?", "explain"),
        ("Why has Service web in namespace shop no address?", "explain svc/web -n shop"),
        ("Which VM is Node w1, and where are its addresses from?", "explain node/w1"),
    ),
    meaning="""
        Says what a Service or a Node is, what would be done about it now and why, and what it waits for. Nothing is
        written. Give the flags of the running program: the same functions decide here. Without a name, all that is not
        fine is explained.

        To explain a Service of one's own, get on Services in its namespace is enough: without a cloud-config it is said
        what the running program has said of it, and since when.

        Exit codes: 0 all is well, 1 something is refused, a warning would be told or a cluster could not be asked, 2
        the command line cannot be used.
    """,
    own=(OUTPUT, NAMESPACE),
    action=_explain,
    words=("svc", "service", NODE, *_OTHERS),
    offline=_is_offline,
)
