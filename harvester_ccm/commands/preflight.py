"""``preflight``: checks both clusters as the controller uses them, with the remedy for each failure.

Both clusters are checked at the same time, every request has a time limit, and a failed check skips those that depend
on it: with two servers that never respond, the command ends after some seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, field

from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments
from harvester_ccm.commands.checks_connection import BOTH, FLAGS, UNREADABLE, Check, Result, check_connection
from harvester_ccm.commands.checks_content import (
    Served,
    api_check,
    is_harvester,
    kept_addresses_check,
    load_balancer_check,
    name_check,
    node_addresses_check,
    node_check,
    rights_check,
    served_by,
    shared_addresses_check,
    vm_check,
    webhook_check,
)
from harvester_ccm.commands.clusters import AskingClient, in_both, read_guest, read_harvester
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Output, hanging, table_row
from harvester_ccm.commands.rights import GUEST, HARVESTER, collections_of, review
from harvester_ccm.config import NODE_CONTROLLER, Settings
from harvester_ccm.errors import CredentialError, rbac_hint
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.model.harvester import ClusterIdentity

COLUMNS: Final = (9, 35, 7)
"""Widths of the columns."""
API_VERSIONS: Final = "API versions"
HEADING: Final = ("WHERE", "CHECK", "RESULT", "DETAIL")


class _Side(Struct):
    """The result for one cluster."""

    where: str
    checks: list[Check] = field(default_factory=list)
    served: Served | None = None
    """The APIs of the server; None if it cannot be reached."""
    inventory: Inventory | None = None
    """Its objects; None if it cannot be used."""


async def _preflight(call: Call) -> int:
    """Print all checks and return the exit code."""
    expect_arguments(call, [])
    settings, environment = call.settings, call.environment
    row = partial(Check, FLAGS, "cluster name")
    warnings = [row(Result.WARNING, text) for text in settings.warnings]
    harvester, guest = await asyncio.gather(
        _check_cluster(HARVESTER, settings, lambda: harvester_credentials(settings.harvester, environment)),
        _check_cluster(GUEST, settings, lambda: guest_credentials(settings.guest, environment)),
    )
    if harvester.served and guest.served and is_harvester(guest.served) and not is_harvester(harvester.served):
        for side in (harvester, guest):
            position = [one.name for one in side.checks].index(API_VERSIONS)
            side.checks[position:] = [Check(side.where, API_VERSIONS, Result.FAILED, *_SWAPPED[side.where])]
            side.inventory = None
    flags = warnings or [row(Result.OK, f"{settings.harvester.cluster_name!r}")]
    checks = [*flags, *harvester.checks, *guest.checks, *_together(settings, harvester, guest)]
    print_checks(call.output, checks)
    return EXIT_PROBLEMS if any(one.result is Result.FAILED for one in checks) else EXIT_OK


def _together(settings: Settings, harvester: _Side, guest: _Side) -> Iterator[Check]:
    """Yield the checks that need both clusters; one row replaces all of them if one cluster cannot be used."""
    checks = {"Nodes and VMs": node_check, "cluster name": name_check, "load balancers": load_balancer_check}
    if harvester.inventory is None or guest.inventory is None:
        lost = " and ".join(side.where for side in (harvester, guest) if side.inventory is None)
        yield Check(BOTH, f"{len(checks)} checks", Result.SKIPPED, f"{', '.join(checks)}: {lost} cannot be used")
        return
    inventory = in_both(guest.inventory, harvester.inventory)
    cluster = ClusterIdentity.of(settings, inventory.namespace, inventory.cluster_uid)
    for check in checks.values():
        yield check(inventory, cluster)
    remarks = [kept_addresses_check(inventory, cluster), shared_addresses_check(inventory)]
    if NODE_CONTROLLER in settings.controllers:
        remarks.append(node_addresses_check(inventory, cluster, settings.nodes))
    yield from (remark for remark in remarks if remark is not None)


async def _check_cluster(where: str, settings: Settings, load: Callable[[], Credentials]) -> _Side:
    """Return the result for one cluster. A failed check ends it."""
    side = _Side(where)
    try:
        credentials = load()
    except CredentialError as error:
        name = "cloud-config" if where == HARVESTER else "kubeconfig"
        side.checks.append(Check(where, name, Result.FAILED, str(error), UNREADABLE[where]))
        return side
    namespace = credentials.namespace or "default"
    ok = Check(where, "kubeconfig", Result.OK, credentials.origin)
    side.checks.append(_namespace_check(credentials, namespace) if where == HARVESTER else ok)
    async with AskingClient(credentials, cluster=where) as client:
        user = await check_connection(client, where, side.checks.append)
        if user is None:
            return side
        side.served = await served_by(client)
        apis = api_check(side.served, where)
        side.checks.append(apis)
        if apis.result is Result.FAILED:
            skipped = "this server lacks the APIs that they are about"
            side.checks.append(Check(where, "all others", Result.SKIPPED, skipped))
            return side
        collections = collections_of(where, settings)
        reviewed, inventory = await asyncio.gather(
            review(client, collections, namespace if where == HARVESTER else ""),
            read_harvester(client) if where == HARVESTER else read_guest(client),
        )
        side.inventory, grantee = inventory, _grantee(where, user, namespace)
        side.checks += (rights_check(where, one, reviewed[one.title], grantee=grantee) for one in collections)
        if where == HARVESTER:
            guest = ClusterIdentity.of(settings, namespace)
            side.checks += [await webhook_check(client, guest), vm_check(inventory, guest)]
    return side


def _grantee(where: str, user: str, namespace: str) -> str:
    who = f"to {user}" if user else "to the user of the kubeconfig"
    if where == GUEST:
        return f"{who}: install the chart of this version, or add it to its ClusterRole"
    return f"{who}: {rbac_hint(namespace)}"


_SWAPPED: Final = {
    HARVESTER: (
        "this server has no load balancers of Harvester, and that of the guest has: the two kubeconfigs are swapped",
        "Give --cloud-config the kubeconfig of Harvester, and --kubeconfig that of this cluster",
    ),
    GUEST: ("this server is a Harvester: the two kubeconfigs are swapped", ""),
}


def _namespace_check(credentials: Credentials, namespace: str) -> Check:
    row = partial(Check, HARVESTER, "cloud-config")
    if credentials.namespace:
        return row(Result.OK, f"{credentials.origin}, namespace {namespace}")
    return row(
        Result.WARNING,
        f"{credentials.origin}, its context names no namespace: {namespace} is used",
        "Name the namespace of this cluster's VMs in the context of the cloud-config",
    )


def print_checks(output: Output, checks: Sequence[Check]) -> None:
    """Print the checks, with the advice below each row, and the summary."""
    counts = Counter(one.result for one in checks)
    if output.scripted:
        worst = next((one for one in (Result.FAILED, Result.WARNING) if counts[one]), Result.OK)
        output.document({"result": worst.lower(), "checks": [one.document() for one in checks]})
        return
    output.line(table_row(HEADING, COLUMNS, width=output.width))
    for one in checks:
        output.line(table_row((one.where, one.name, one.result, one.detail), COLUMNS, width=output.width))
        if one.advice:
            output.line(hanging(one.advice, first="    → ", width=output.width))
    output.line(f"\n{_summary(counts)}")


def _summary(counts: Mapping[Result, int]) -> str:
    """Return the last line.

    >>> _summary({Result.FAILED: 1, Result.WARNING: 2, Result.SKIPPED: 1, Result.OK: 5})
    'NOT READY: 1 problem, 2 warnings, 1 skipped, 5 ok.'
    >>> _summary({Result.OK: 30, Result.WARNING: 1})
    'READY: 1 warning, 30 ok.'
    """
    nouns = {Result.FAILED: "problem", Result.WARNING: "warning"}
    told = [f"{counts[one]} {noun}{'s' * (counts[one] > 1)}" for one, noun in nouns.items() if counts.get(one)]
    told += [f"{counts[one]} {one}" for one in (Result.SKIPPED, Result.OK) if counts.get(one)]
    return f"{'NOT READY' if counts.get(Result.FAILED) else 'READY'}: {', '.join(told)}."


MANUAL: Final = Manual(
    usages=("preflight [flags]",),
    examples=(
        (
            "Before the installation, from anywhere.",
            "preflight --cloud-config=cloud-config --kubeconfig=guest.yaml --cluster-name=demo",
        ),
        ("Only the result, for a script.", "preflight -o json"),
    ),
    meaning="""
        Checks both clusters with the flags and credentials of the running program: addresses, TLS, credentials, every
        right that is used, API versions, namespace, VMs and their labels, the cluster name. For each fault the table
        says what to do. Nothing is changed.

        Exit codes: 0 all is well (warnings may be left), 1 something failed, 2 the flags cannot be used.
    """,
    own=(OUTPUT,),
    action=_preflight,
)
