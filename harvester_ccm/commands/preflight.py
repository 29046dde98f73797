"""``preflight``: both clusters checked as the running program would use them, with what to do about each fault.

The clusters are looked at at the same time, every question has a time limit, and what depends on a failed check is
skipped: with two servers that never answer it is over in some seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

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
from harvester_ccm.errors import CredentialError, binding
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.model.cluster import ClusterIdentity

COLUMNS: Final = (9, 35, 7)
"""Widths of the columns; fixed, because rows are printed as they come."""
HEADING: Final = ("WHERE", "CHECK", "RESULT", "DETAIL")


async def _preflight(call: Call) -> int:
    """Show every check as soon as it and all before it are done, and return the exit code."""
    expect_arguments(call, [])
    settings, environment = call.settings, call.environment
    printer = _Printer(call.output)
    row = partial(Check, FLAGS, "cluster name")
    warnings = [row(Result.WARNING, text) for text in settings.warnings]
    for check in warnings or [row(Result.OK, f"{settings.harvester.cluster_name!r}")]:
        printer.show(check)
    harvester, guest = sides = (
        _Side(HARVESTER, settings, lambda: harvester_credentials(settings.harvester, environment)),
        _Side(GUEST, settings, lambda: guest_credentials(settings.guest, environment)),
    )
    async with asyncio.TaskGroup() as group:
        for side in sides:
            other = guest if side is harvester else harvester
            group.create_task(side.run(other), name=f"preflight {side.where}")
        for side in sides:
            while (found := await side.found.get()) is not None:
                printer.show(found)
    for check in _together(settings, harvester, guest):
        printer.show(check)
    printer.close()
    return EXIT_PROBLEMS if any(one.result is Result.FAILED for one in printer.shown) else EXIT_OK


def _together(settings: Settings, harvester: _Side, guest: _Side) -> Iterator[Check]:
    """Yield the checks of what needs both clusters; one row stands for all where one of them cannot be used."""
    lost = [side.where for side in (harvester, guest) if not side.usable]
    if lost:
        named = ", ".join(_TOGETHER)
        yield Check(BOTH, f"{len(_TOGETHER)} checks", Result.SKIPPED, f"{named}: {' and '.join(lost)} cannot be used")
        return
    inventory = in_both(guest.inventory, harvester.inventory)
    cluster = ClusterIdentity.of(settings, harvester.namespace, inventory.cluster_uid)
    for look in _TOGETHER.values():
        yield look(inventory, cluster)
    remarks = [kept_addresses_check(inventory, cluster), shared_addresses_check(inventory)]
    if NODE_CONTROLLER in settings.controllers:
        remarks.append(node_addresses_check(inventory, cluster, settings.nodes))
    yield from (remark for remark in remarks if remark is not None)


_TOGETHER: Final = {"Nodes and VMs": node_check, "cluster name": name_check, "load balancers": load_balancer_check}


class _Side:
    """One cluster; its checks come out of ``found`` in their order, None is the end."""

    def __init__(self, where: str, settings: Settings, load: Callable[[], Credentials]) -> None:
        self.where = where
        self.namespace = ""
        self.inventory = Inventory()
        self.usable = False
        """Whether the cluster was looked into."""
        self.served: asyncio.Future[Served | None] = asyncio.get_running_loop().create_future()
        """The APIs of the server; None when it cannot be asked."""
        self.found: asyncio.Queue[Check | None] = asyncio.Queue()
        self._say = self.found.put_nowait
        self._settings = settings
        self._load = load

    async def run(self, other: _Side) -> None:
        """Make all checks of this cluster; ``other`` is the other one."""
        try:
            credentials = self._credentials()
            if credentials is not None:
                async with AskingClient(credentials, cluster=self.where) as client:
                    await self._look(client, other)
        finally:
            self._tell_served(None)
            self.found.put_nowait(None)

    def _tell_served(self, served: Served | None) -> None:
        if not self.served.done():
            self.served.set_result(served)

    def _credentials(self) -> Credentials | None:
        name = "cloud-config" if self.where == HARVESTER else "kubeconfig"
        try:
            credentials = self._load()
        except CredentialError as error:
            self._say(Check(self.where, name, Result.FAILED, str(error), UNREADABLE[self.where]))
            return None
        if self.where == HARVESTER:
            self.namespace = credentials.namespace or "default"
            self._say(_namespace_check(credentials, self.namespace))
        else:
            self._say(Check(self.where, name, Result.OK, credentials.origin))
        return credentials

    async def _look(self, client: ApiClient, other: _Side) -> None:
        user = await check_connection(client, self.where, self._say)
        if user is None:
            return
        served = await served_by(client)
        self._tell_served(served)
        apis = api_check(served, self.where)
        is_odd = apis.result is Result.FAILED if self.where == HARVESTER else is_harvester(served)
        if is_odd:
            # The other server is waited for only where it matters.
            theirs = await other.served
            pair = (served, theirs) if self.where == HARVESTER else (theirs, served)
            if pair[0] is not None and pair[1] is not None and is_harvester(pair[1]) and not is_harvester(pair[0]):
                self._say(Check(self.where, "API versions", Result.FAILED, *_SWAPPED[self.where]))
                return
        self._say(apis)
        if apis.result is Result.FAILED:
            self._say(Check(self.where, "all others", Result.SKIPPED, "this server lacks the APIs that they are about"))
            return
        self.usable = True
        rights, self.inventory = await asyncio.gather(
            self._rights(client, user), read_harvester(client) if self.where == HARVESTER else read_guest(client)
        )
        for check in rights:
            self._say(check)
        if self.where == HARVESTER:
            guest = ClusterIdentity.of(self._settings, self.namespace)
            self._say(await webhook_check(client, guest))
            self._say(vm_check(self.inventory, guest))

    async def _rights(self, client: ApiClient, user: str) -> list[Check]:
        collections = collections_of(self.where, self._settings)
        found = await review(client, collections, self.namespace)
        grantee = self._grantee(user)
        return [rights_check(self.where, one, found[one.title], grantee=grantee) for one in collections]

    def _grantee(self, user: str) -> str:
        who = f"to {user}" if user else "to the user of the kubeconfig"
        if self.where == GUEST:
            return f"{who}: install the chart of this version, or add it to its ClusterRole"
        return f"{who}: {binding(user, self.namespace)}"


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


class _Printer:
    """Prints checks as they come, or all together as JSON."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.shown: list[Check] = []
        if not output.scripted:
            output.line(table_row(HEADING, COLUMNS, width=output.width))

    def show(self, check: Check) -> None:
        """Take a check."""
        self.shown.append(check)
        if self._output.scripted:
            return
        cells = (check.where, check.name, check.result, check.detail)
        self._output.line(table_row(cells, COLUMNS, width=self._output.width))
        if check.advice:
            self._output.line(hanging(check.advice, first="    → ", width=self._output.width))

    def close(self) -> None:
        """Print what is due at the end."""
        counts = Counter(one.result for one in self.shown)
        worst = next((one for one in (Result.FAILED, Result.WARNING) if counts[one]), Result.OK)
        if self._output.scripted:
            self._output.document({"result": worst.lower(), "checks": [one.document() for one in self.shown]})
            return
        failed = [one for one in self.shown if one.result is Result.FAILED]
        self._output.line()
        for one in failed:
            first = f"{one.where} {one.name} FAILED: "
            self._output.line(hanging(one.detail, first=first, width=self._output.width))
            if one.advice:
                self._output.line(hanging(one.advice, first="    → ", width=self._output.width))
        self._output.line(_summary(counts))


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
