"""Checks both clusters as the controller uses them, and prints a remedy for each failure.

Addresses, TLS, credentials, every permission that is used, API versions, the namespace, VMs and their labels, and the
cluster name are checked. A failed check skips those that depend on it. Nothing is changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.text import Text

from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.call import OUTPUT, Call, Manual, expect_arguments
from harvester_ccm.commands.checks import Check, Finding, Result, check_admission, check_connection
from harvester_ccm.commands.checks_content import check_content
from harvester_ccm.commands.clusters import GUEST, HARVESTER, ask, list_clusters
from harvester_ccm.commands.permissions import check_permissions
from harvester_ccm.commands.render import Document, table
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, CredentialError, NotServed
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.model.core import Service
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.model.meta import ObjectMeta
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.request import read_request

_UNUSABLE_FILE: Final = {
    HARVESTER: "Correct --cloud-config or what is in the file; generate_addon.sh makes a new one",
    GUEST: "Correct --kubeconfig or KUBECONFIG, or what is in the file; in a pod leave both out",
}


async def _preflight(call: Call) -> int:
    expect_arguments(call, [])
    settings, environment = call.settings, call.environment
    names = [Check("flags", "cluster name", Result.WARNING, text) for text in settings.warnings]
    names = names or [Check("flags", "cluster name", Result.OK, f"{settings.harvester.cluster_name!r}")]
    async with AsyncExitStack() as stack:
        of_harvester, of_guest = await asyncio.gather(
            _check_cluster(HARVESTER, settings, lambda: harvester_credentials(settings.harvester, environment), stack),
            _check_cluster(GUEST, settings, lambda: guest_credentials(settings.guest, environment), stack),
        )
        clients = [client for _, client in (of_harvester, of_guest) if client is not None]
        content = list(check_content(await list_clusters(settings, *clients), settings)) if clients else []
    checks = [*names, *of_harvester[0], *of_guest[0], *content]
    call.output.answer(document_of(checks), preflight_text)
    return EXIT_PROBLEMS if any(one.result is Result.FAILED for one in checks) else EXIT_OK


async def _check_cluster(
    where: str, settings: Settings, load: Callable[[], Credentials], stack: AsyncExitStack
) -> tuple[list[Check], ApiClient | None]:
    """Return the checks of one cluster, and its client if it can be used; ``stack`` closes the client."""
    file = "cloud-config" if where == HARVESTER else "kubeconfig"
    try:
        credentials = load()
    except CredentialError as error:
        return [Check(where, file, Result.FAILED, str(error), _UNUSABLE_FILE[where])], None
    checks = [Check(where, file, *_check_file(credentials, where))]
    client = await stack.enter_async_context(ApiClient(credentials, cluster=where))
    of_connection, user = await check_connection(client, where)
    checks += of_connection
    if user is not None and where == HARVESTER:
        checks.append(Check(where, "API versions", *await check_versions(client)))
    if user is None or checks[-1].result is Result.FAILED:
        return checks, None
    checks += await check_permissions(client, where, settings, user)
    if where == HARVESTER:
        example = _example(ClusterIdentity.of(settings, client.namespace))
        checks.append(Check(where, "webhook", *await check_admission(client, example, client.namespace)))
    return checks, client


def _check_file(credentials: Credentials, where: str) -> Finding:
    if where == GUEST:
        return Result.OK, credentials.origin, ""
    if credentials.namespace:
        return Result.OK, f"{credentials.origin}, namespace {credentials.namespace}", ""
    text = f"{credentials.origin}, its context names no namespace: default is used"
    return Result.WARNING, text, "Name the namespace of this cluster's VMs in the context of the cloud-config"


async def check_versions(client: ApiClient) -> Finding:
    """Check that Harvester serves its API in the version that is used."""
    for one in (LOAD_BALANCERS.api_version, VIRTUAL_MACHINES.api_version):
        response = await ask(client.request("GET", f"/apis/{one}"))
        if isinstance(response, NotServed):
            advice = (
                "Check that the server in the cloud-config is Harvester, and that --cloud-config and --kubeconfig are "
                "not swapped. Harvester before 1.2 is not supported: upgrade it"
            )
            return Result.FAILED, f"not served: {one}", advice
        if isinstance(response, CCMError):
            return Result.FAILED, f"unknown: {response}", ""
    return Result.OK, f"{LOAD_BALANCERS.api_version}, {VIRTUAL_MACHINES.api_version}", ""


def _example(cluster: ClusterIdentity) -> Document:
    """Return a load balancer as the controller creates it."""
    service = Service(metadata=ObjectMeta(name="preflight", namespace="default", uid="preflight"))
    return new_load_balancer(service, read_request(service), cluster, {})


def document_of(checks: Sequence[Check]) -> Document:
    """Return the document of all checks, with the worst result."""
    worst = (one for one in (Result.FAILED, Result.WARNING) if any(check.result is one for check in checks))
    return {"result": next(worst, Result.OK), "checks": [msgspec.to_builtins(one) for one in checks]}


def preflight_text(document: Document) -> Iterator[RenderableType]:
    """Yield the table of all checks, with the advice below each row, and the summary."""
    checks = document["checks"]
    rows = [{key: one[key] for key in ("where", "check", "result", "detail")} for one in checks]
    yield from table(rows, below=[f"→ {one['advice']}" if one["advice"] else "" for one in checks])
    counts = Counter(one["result"] for one in checks)
    counted = ", ".join(f"{counts[result]} {result}" for result in Result if counts[result])
    yield Text(f"\n{'NOT READY' if counts[Result.FAILED] else 'READY'}: {counted}.")


MANUAL: Final = Manual(
    meaning=__doc__,
    usages=("preflight [flags]",),
    examples=(
        (
            "Before the installation, from anywhere.",
            "preflight --cloud-config=cloud-config --kubeconfig=guest.yaml --cluster-name=demo",
        ),
        ("Only the result, for a script.", "preflight -o json"),
    ),
    own=(OUTPUT,),
    action=_preflight,
)
