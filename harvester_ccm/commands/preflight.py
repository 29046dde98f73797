"""``preflight``: both clusters checked as the running program would use them, with what to do about each fault.

The clusters are looked at at the same time, every question has a time limit, and what depends on a failed check is
skipped: with two servers that never answer it is over in some seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments
from harvester_ccm.commands.checks_connection import (
    FLAGS,
    REMEDIES,
    Check,
    Result,
    check_connection,
)
from harvester_ccm.commands.checks_content import (
    NotLookedAt,
    api_check,
    kept_addresses_check,
    load_balancer_check,
    name_check,
    node_addresses_check,
    node_check,
    rights_check,
    vm_check,
)
from harvester_ccm.commands.clusters import in_both, read_guest, read_harvester
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.render import Output, hanging, table_row
from harvester_ccm.commands.rights import GUEST, HARVESTER, collections_of, review
from harvester_ccm.config import NODE_CONTROLLER, Settings
from harvester_ccm.errors import CredentialError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.model.cluster import ClusterIdentity
from harvester_ccm.model.core import NODES
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES

COLUMNS: Final = (9, 35, 7)
"""Widths of the columns; fixed, because rows are printed as they come."""
HEADING: Final = ("WHERE", "CHECK", "RESULT", "DETAIL")

READ_OF: Final = {
    GUEST: (NODES.plural,),
    HARVESTER: (VIRTUAL_MACHINES.plural, LOAD_BALANCERS.plural),
}
"""The collections that checks of the content need."""


async def _preflight(call: Call) -> int:
    """Show every check as soon as it and all before it are done."""
    expect_arguments(call, [])
    settings, printer = call.settings, _Printer(call.output)
    row = partial(Check, FLAGS, "cluster name")
    warnings = [row(Result.WARNING, text) for text in settings.warnings]
    for check in warnings or [row(Result.OK, f"{settings.harvester.cluster_name!r}")]:
        printer.show(check)
    harvester, guest = sides = (
        _Side(HARVESTER, settings, lambda: harvester_credentials(settings.harvester, call.environment)),
        _Side(GUEST, settings, lambda: guest_credentials(settings.guest, call.environment)),
    )
    async with asyncio.TaskGroup() as group:
        for side in sides:
            group.create_task(side.run(), name=f"preflight {side.where}")
        for side in sides:
            while (found := await side.found.get()) is not None:
                printer.show(found)
    inventory = in_both(guest.inventory, harvester.inventory)
    cluster = ClusterIdentity.of(settings, harvester.namespace, inventory.cluster_uid)
    for look in (node_check, name_check, load_balancer_check):
        printer.show(look(inventory, cluster))
    remarks = [kept_addresses_check(inventory, cluster)]
    if NODE_CONTROLLER in settings.controllers:
        remarks.append(node_addresses_check(inventory, cluster, settings.nodes))
    for remark in remarks:
        if remark is not None:
            printer.show(remark)
    printer.close()
    return EXIT_PROBLEMS if any(one.result is Result.FAILED for one in printer.shown) else EXIT_OK


class _Side:
    """One cluster; its checks come out of ``found`` in their order, None is the end."""

    def __init__(self, where: str, settings: Settings, load: Callable[[], Credentials]) -> None:
        self.where = where
        self.namespace = ""
        self.inventory = Inventory(problems=dict.fromkeys(READ_OF[where], NotLookedAt()))
        self.found: asyncio.Queue[Check | None] = asyncio.Queue()
        self._say = self.found.put_nowait
        self._settings = settings
        self._load = load

    async def run(self) -> None:
        """Make all checks of this cluster."""
        try:
            credentials = self._credentials()
            if credentials is not None:
                async with ApiClient(credentials, cluster=self.where) as client:
                    await self._look(client)
        finally:
            self.found.put_nowait(None)

    def _credentials(self) -> Credentials | None:
        name = "cloud-config" if self.where == HARVESTER else "kubeconfig"
        try:
            credentials = self._load()
        except CredentialError as error:
            self._say(Check(self.where, name, Result.FAILED, str(error), REMEDIES[self.where]))
            self._say(Check(self.where, "all others", Result.SKIPPED, f"the {name} cannot be used"))
            return None
        if self.where == HARVESTER:
            self.namespace = credentials.namespace or "default"
            self._say(_namespace_check(credentials, self.namespace))
        else:
            self._say(Check(self.where, name, Result.OK, credentials.origin))
        return credentials

    async def _look(self, client: ApiClient) -> None:
        user = await check_connection(client, self.where, self._say)
        if user is None:
            self._say(Check(self.where, "all others", Result.SKIPPED, "the cluster cannot be used"))
            return
        apis, rights, self.inventory = await asyncio.gather(
            api_check(client, self.where),
            self._rights(client, user),
            read_harvester(client) if self.where == HARVESTER else read_guest(client),
        )
        for check in (apis, *rights):
            self._say(check)
        if self.where == HARVESTER:
            guest = ClusterIdentity.of(self._settings, self.namespace)
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
        text = f"{who}: bind the ClusterRole harvesterhci.io:cloudprovider to it in namespace {self.namespace}"
        kind, _, rest = user.partition("system:serviceaccount:")
        home = rest.partition(":")[0]
        if not kind and home and home != self.namespace:
            text += f". It is a service account of namespace {home}; is {self.namespace} the right namespace?"
        return text


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
        if not output.as_json:
            output.line(table_row(HEADING, COLUMNS, width=output.width))

    def show(self, check: Check) -> None:
        """Take a check."""
        self.shown.append(check)
        if self._output.as_json:
            return
        cells = (check.where, check.name, check.result, check.detail)
        self._output.line(table_row(cells, COLUMNS, width=self._output.width))
        if check.advice:
            self._output.line(hanging(check.advice, first="    → ", width=self._output.width))

    def close(self) -> None:
        """Print what is due at the end."""
        counts = Counter(one.result for one in self.shown)
        worst = next((one for one in (Result.FAILED, Result.WARNING) if counts[one]), Result.OK)
        if self._output.as_json:
            self._output.document({"result": worst.lower(), "checks": [one.document() for one in self.shown]})
            return
        parts = [f"{counts[result]} {words}" for result, (words, _) in _WORDS.items() if counts[result]]
        self._output.line(f"\n{', '.join(parts)}. {_WORDS[worst][1]}")


_WORDS: Final = {
    Result.OK: ("ok", "All is well."),
    Result.WARNING: ("with warnings", "It will work, except for what the warnings say."),
    Result.FAILED: ("failed", "It will not work until what failed is put right."),
    Result.SKIPPED: ("skipped", ""),
}
"""How many checks came to this, and what it means when it is the worst."""


MANUAL: Final = Manual(
    usages=("preflight [flags]",),
    meaning="""
        Checks both clusters with the flags and credentials of the running program: addresses, TLS, credentials, every
        right that is used, API versions, namespace, VMs and their labels, the cluster name. For each fault the table
        says what to do. Nothing is changed.

        Exit codes: 0 all is well (warnings may be left), 1 something failed, 2 the flags cannot be used.
    """,
    own=(OUTPUT,),
    action=_preflight,
)
