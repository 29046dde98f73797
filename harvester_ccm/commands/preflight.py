"""Checks both clusters as the controller uses them, and prints a fix for each failure.

Kubeconfigs, TLS, credentials, every permission that is used, API versions, Harvester's webhook, the VMs of the Nodes,
and the cluster name are checked. A failed check leaves out those that depend on it. Nothing is changed.
"""

import asyncio
import stat
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS, EXIT_USAGE
from harvester_ccm.commands.checks import OTHER_CLUSTER_NAME
from harvester_ccm.commands.clusters import (
    GUEST,
    GUEST_FIX,
    HARVESTER,
    TITLES,
    ClusterStore,
    Connection,
    TimedClient,
    answer_within,
    guest_is_harvester,
    is_harvester,
    request_or_error,
    rights_in,
    served_resources,
    sign_of_life,
)
from harvester_ccm.commands.events import UNEXPLAINED
from harvester_ccm.commands.leader import LEASE_NOT_WRITABLE
from harvester_ccm.commands.permissions import PERMISSIONS, Permission, is_granted, permissions_of, what_is_missing
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec, Document, row
from harvester_ccm.commands.states import NO_LEADER
from harvester_ccm.commands.status import SAME_CLUSTER, Survey, alike, problem_rows, survey
from harvester_ccm.config import Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube import errors, reviews
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.objects import ObjectMeta
from harvester_ccm.model.core import Service
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.plan.service.allocation.address_pools import GRANT
from harvester_ccm.plan.service.announcing.seen import read_seen
from harvester_ccm.plan.service.load_balancer.specification import new_load_balancer
from harvester_ccm.plan.service.messages import (
    WEBHOOK_AWAY,
    remedy_of_rejection,
    webhook_advice,
)
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.remedies import SLOW_REMEDIES, guest_rbac_hint, rbac_hint, remedy_of

_FILES: Final = {HARVESTER: "cloud-config", GUEST: "kubeconfig"}
_FIXES: Final = {
    HARVESTER: "Correct --cloud-config or what is in the file, or make a new one (generate_addon.sh, or Rancher)",
    GUEST: "Correct --kubeconfig or KUBECONFIG, or what is in the file; in a pod, leave both out",
}
"""Fix for a kubeconfig that cannot be used or is not accepted, by cluster."""
_decode_version: Final = msgspec.json.Decoder(dict[str, object]).decode
NAME_CHECK: Final = "cluster name"
API_CHECK: Final = "API versions"
CONTENT_CHECK: Final = "contents"
_USUAL: Final = frozenset({NO_LEADER, *UNEXPLAINED})
"""Reasons that are right before an installation."""
_FATAL: Final = frozenset({LEASE_NOT_WRITABLE, OTHER_CLUSTER_NAME, SAME_CLUSTER})
"""Reasons for which the controller must not be installed or cannot work."""
DRY_RUN_SECONDS: Final = 5.0
"""Time for the dry run. Longer than a slow server needs, and short for a person: a webhook that hangs may take 30 s."""


class Result(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """The rest works."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """Not checked, because it depends on something that cannot be read."""


Finding = tuple[Result, str, str]
"""Result, detail, and what to do, which is empty if nothing is."""


class Row(Struct, frozen=True):
    """A row of ``preflight``: a check with its result."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    check: str
    result: Result
    detail: str
    fix: str = ""
    """What to do; empty if nothing has to be done."""


async def check_permissions(client: ApiClient, settings: Settings, user: str) -> list[Row]:
    """Return a check for each kind of object."""
    where = client.cluster
    used = permissions_of(where, settings)
    requests = (is_granted(client, permission, settings, {}) for permission in used)
    granted = await asyncio.gather(*map(request_or_error, requests))
    who = f"to {user}" if user else "to the user of the kubeconfig"
    of_account = user.split(":")[2] if user.startswith("system:serviceaccount:") else ""
    checks = []
    for title, pairs in groupby(zip(used, granted, strict=True), key=lambda pair: pair[0].title):
        hint = rbac_hint(client.namespace, of_account) if where == HARVESTER else guest_rbac_hint(title)
        checks.append(Row(where, title, *_judged(list(pairs), f"{who}: {hint}")))
    return checks


def _judged(pairs: Sequence[tuple[Permission, bool | errors.KubeError]], grantee: str) -> Finding:
    """Check the permissions on one kind of object; ``grantee`` says where to grant what is missing."""
    missing = [permission for permission, granted in pairs if granted is False]
    if missing:
        return _missing(missing, grantee)
    unknown = next((granted for _, granted in pairs if isinstance(granted, errors.KubeError)), None)
    if unknown is not None:
        result = Result.SKIPPED if isinstance(unknown, errors.Forbidden) else Result.FAILED
        return result, f"unknown: {unknown}", "Check the health and the load of this server"
    verbs = ", ".join(permission.verb for permission, _ in pairs)
    return Result.OK, f"can {verbs}", ""


def _missing(missing: Sequence[Permission], grantee: str) -> Finding:
    """Return the finding about permissions on one kind of object that are missing."""
    is_required = any(permission.required for permission in missing)
    result = Result.FAILED if is_required else Result.WARNING
    return result, *what_is_missing(missing, grantee)


class Reached(Struct, frozen=True):
    """A cluster whose server accepts the credential."""

    client: TimedClient
    version: object
    """The response to the first request, or its error."""
    user: str
    """Empty if the server does not report it."""


async def _preflight(context: CommandContext) -> int:
    checks = await _check_clusters(context)
    width = context.output.console.width
    context.output.answer({"checks": msgspec.to_builtins(checks)}, lambda shown: _text(shown["checks"], width))
    failed = {check.check for check in checks if check.result is Result.FAILED}
    if failed == {NAME_CHECK}:
        return EXIT_USAGE
    return EXIT_PROBLEMS if failed else EXIT_OK


async def _check_clusters(context: CommandContext) -> list[Row]:
    """Return the checks: of the flags, of each cluster, and of what both contain if both respond."""
    checks = _name_checks(context.settings) if context.is_named else []
    with sign_of_life():
        async with AsyncExitStack() as stack:
            found = await asyncio.gather(*(_reach(where, context, stack) for where in (HARVESTER, GUEST)))
            reached = [cluster for _, cluster in found if cluster is not None]
            of_servers = [_check_server(cluster, context.settings) for cluster in reached]
            *results, of_content = await asyncio.gather(*of_servers, _check_content(context, reached))
    by_cluster = {cluster.client.cluster: result for cluster, result in zip(reached, results, strict=True)}
    for where, (of_kubeconfig, _) in zip((HARVESTER, GUEST), found, strict=True):
        checks += [*of_kubeconfig, *by_cluster.get(where, ())]
    if any((check.where, check.check) == (GUEST, API_CHECK) for check in checks):
        # It is a Harvester, in which nothing is right.
        return checks
    return [*checks, *of_content]


def _name_checks(settings: Settings) -> list[Row]:
    checks = [Row("flags", NAME_CHECK, Result.WARNING, text) for text in settings.warnings]
    return checks or [Row("flags", NAME_CHECK, Result.OK, f"{settings.harvester.cluster_name!r}")]


async def _check_content(context: CommandContext, reached: Sequence[Reached]) -> list[Row]:
    """Return the rows of what both clusters contain: what is a problem or a hint of ``status``."""
    clients = {cluster.client.cluster: cluster.client for cluster in reached}
    if len(clients) < len(TITLES):
        return []
    try:
        found = await survey(context, Connection(clients[GUEST], clients[HARVESTER]))
    except ConfigurationError as error:
        return [Row("flags", NAME_CHECK, Result.FAILED, problem) for problem in error.problems]
    except errors.KubeError as error:
        return [Row("both", CONTENT_CHECK, Result.SKIPPED, f"cannot be read: {error}")]
    store = found.store
    rows = [] if context.is_named else _name_checks(found.settings)
    rows.append(Row("both", CONTENT_CHECK, *_summary(store)))
    problems = list(problem_rows(found.problems, is_away=False))
    fatal = {*_FATAL, *_of_all_nodes(problems, len(store.nodes))}
    for same in alike([*problems, *problem_rows(found.hints, is_away=False)]):
        if same[0]["reason"] not in _USUAL:
            rows.append(_row_about(same, fatal))
    return [*rows, Row(GUEST, "leader election", *_check_leader(context.settings, found))]


def _of_all_nodes(problems: Sequence[Document], number: int) -> set[str]:
    """Return the reasons that all Nodes have; ``number`` is that of all."""
    found = {(problem["object"], problem["reason"]) for problem in problems if problem["object"].startswith("Node ")}
    counts = Counter(reason for _, reason in found)
    return {reason for reason, nodes in counts.items() if nodes == number}


def _summary(store: ClusterStore) -> Finding:
    """Return how many objects were read; a cluster without Nodes may be another one."""
    text = f"{len(store.nodes)} Nodes and {len(store.services)} Services, {len(store.vms)} VMs in Harvester"
    if not len(store.nodes):
        return Result.WARNING, f"{text}: the cluster has no Node", "Is this the right cluster?"
    return Result.OK, text, ""


def _row_about(same: Sequence[Document], fatal: Container[str]) -> Row:
    """Return the row about objects that share a problem."""
    first = same[0]
    result = Result.FAILED if first["reason"] in fatal else Result.WARNING
    names = abbreviate([problem["object"] for problem in same])
    command = f"Run: {first['command']}" if first["command"] else ""
    return Row("both", first["reason"], result, f"{names}: {first['message']}", command)


def _check_leader(settings: Settings, found: Survey) -> Finding:
    """Return whether replicas are elected, and which one leads; a Lease with a problem has a row of its own."""
    if not settings.leader_election.enabled:
        return Result.WARNING, "off (--leader-elect=false): nothing prevents a second controller", "Remove that flag"
    if found.lease is None:
        return Result.SKIPPED, "the Lease cannot be read", ""
    if found.lease.holder_identity:
        return Result.OK, f"{found.lease.holder_identity} leads", ""
    return Result.OK, "no replica leads; before an installation, that is right", ""


async def _reach(where: str, context: CommandContext, stack: AsyncExitStack) -> tuple[list[Row], Reached | None]:
    """Return the checks of a kubeconfig, and the cluster if its server accepts the credential.

    ``stack`` closes the client.
    """
    try:
        credentials = _load(where, context)
    except errors.CredentialError as error:
        return [Row(where, _FILES[where], Result.FAILED, str(error), _FIXES[where])], None
    file = Row(where, _FILES[where], *_check_file(credentials, where))
    client = await stack.enter_async_context(TimedClient(credentials, cluster=where))
    version, who = await asyncio.gather(
        request_or_error(client.read("/version", _decode_version)),
        request_or_error(reviews.ask_review(client, reviews.SUBJECT_REVIEWS, {})),
    )
    problem = _error_of(version, who)
    if problem is not None:
        return [file, _unusable(problem, credentials, where)], None
    user = "" if isinstance(who, errors.KubeError) else who.user_info.username
    return [file], Reached(client, version, user)


def _load(where: str, context: CommandContext) -> Credentials:
    if where == HARVESTER:
        return harvester_credentials(context.settings.harvester, context.environment)
    return guest_credentials(context.settings.guest, context.environment)


async def _check_server(reached: Reached, settings: Settings) -> list[Row]:
    """Return the checks of a server: those of the permissions only if it is the right one."""
    client = reached.client
    where = client.cluster
    credentials = client.credentials
    credential = Row(where, "credential", *check_credential(credentials, where, reached.user))
    of_api, permissions = await asyncio.gather(
        _check_harvester(client, settings) if where == HARVESTER else _check_guest(client),
        check_permissions(client, settings, reached.user),
    )
    checks = [
        Row(where, "server", *_check_answer(reached)),
        Row(where, "TLS", *_check_tls(credentials)),
        credential,
        *of_api[:1],
    ]
    if Result.FAILED in {check.result for check in checks}:
        return checks
    return [*checks, *permissions, *of_api[1:]]


async def _check_guest(client: ApiClient) -> list[Row]:
    """Return a check only for a server that cannot be that of a guest cluster."""
    wrong = Row(GUEST, API_CHECK, Result.FAILED, guest_is_harvester(client), GUEST_FIX)
    return [wrong] if await is_harvester(client) else []


async def _check_harvester(client: ApiClient, settings: Settings) -> list[Row]:
    """Return the checks of Harvester: the API versions first, and what depends on them."""
    cluster = ClusterIdentity.of(settings, client.namespace)
    versions, requested, admission = await asyncio.gather(
        check_versions(client), check_requests(client), check_admission(client, _example(cluster), cluster)
    )
    return [
        Row(HARVESTER, API_CHECK, *versions),
        Row(HARVESTER, "requested addresses", *requested),
        Row(HARVESTER, "webhook", *admission),
    ]


def _check_answer(reached: Reached) -> Finding:
    version = reached.version
    known = f", Kubernetes {version.get('gitVersion')}" if isinstance(version, dict) else ""
    client = reached.client
    server = client.credentials.server
    if not client.is_slow:
        return Result.OK, f"{server} answers{known}", ""
    return Result.OK, f"{server} answers ({client.seconds:.1f} s, slow){known}", SLOW_REMEDIES[client.cluster]


def _error_of(version: object, who: object) -> errors.KubeError | None:
    """Return why a server cannot be used, by its responses to the first two requests; None if it can."""
    if isinstance(version, errors.Forbidden) and version.is_of_server_path:
        return version
    if isinstance(version, errors.KubeError) and not isinstance(version, errors.Forbidden):
        return version
    # Servers before Kubernetes 1.28 do not serve the review.
    if isinstance(who, errors.KubeError) and not isinstance(who, errors.Forbidden | errors.NotServed):
        return who
    return None


def _check_file(credentials: Credentials, where: str) -> Finding:
    if where == GUEST:
        return Result.OK, credentials.origin, ""
    if credentials.namespace:
        return Result.OK, f"{credentials.origin}, namespace {credentials.namespace}", ""
    text = f"{credentials.origin}, its context names no namespace: default is used"
    return Result.WARNING, text, "Name the namespace of this cluster's VMs in the context of the cloud-config"


def _unusable(error: errors.KubeError, credentials: Credentials, where: str) -> Row:
    """Return the failed check of a server that cannot be used; for Harvester it has the fix of the Events."""
    row = "server"
    text = str(error)
    fix = "Check that the address is that of a Kubernetes API server"
    match error:
        case errors.CredentialError():
            # The plugin or the token file failed, and nothing was sent.
            row = "credential"
            fix = _FIXES[where]
        case errors.Unauthorized():
            row = "credential"
            fix = remedy_of(error)
        case errors.NotTrusted():
            row = "TLS"
            fix = remedy_of(error)
        case errors.Forbidden() | errors.Unreachable():
            fix = remedy_of(error)
        case errors.ApiError():
            text = f"{credentials.server}: HTTP status {error.answer.status}: {error}"
    return Row(where, row, Result.FAILED, text, fix)


def _check_tls(credentials: Credentials) -> Finding:
    if not credentials.weakness:
        return Result.OK, "the server's certificate is verified", ""
    fix = "Use https:// and certificate-authority-data in the kubeconfig"
    return Result.WARNING, f"others can read the token: {credentials.weakness}", fix


def check_credential(credentials: Credentials, where: str, user: str) -> Finding:
    """Check a credential that the server accepts; ``user`` is empty if the server does not report it."""
    if user == "system:anonymous":
        return Result.FAILED, "none is sent: the user is system:anonymous", _FIXES[where]
    name = f"accepted, user {user}" if user else "accepted"
    mode = Path(credentials.origin).lstat().st_mode
    # A mounted Secret is a link that only one pod can see.
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        return Result.WARNING, f"{name}; every user of this host can read {credentials.origin}", "Set its mode to 0600"
    end = credentials.expiry
    if end is None:
        return Result.OK, name, ""
    what = "client certificate" if credentials.certificate else "token"
    # What ends soon has a row of its own.
    return Result.OK, f"{name}, the {what} expires on {end:%Y-%m-%d %H:%M} UTC", ""


async def check_versions(client: ApiClient) -> Finding:
    """Check that Harvester serves its API in the version that is used."""
    missing: list[str] = []
    for resource in (LOAD_BALANCERS, VIRTUAL_MACHINES):
        served = await served_resources(client, resource.api_version)
        if not isinstance(served, errors.KubeError) and resource.plural in served:
            continue
        if isinstance(served, errors.KubeError) and not isinstance(served, errors.NotServed):
            return Result.FAILED, f"unknown: {served}", ""
        missing.append(f"{resource.plural} of {resource.api_version}")
    if missing:
        fix = (
            "Check that the server in the cloud-config is Harvester, that --cloud-config and --kubeconfig are not "
            "swapped, and that the CustomResourceDefinition exists. Harvester before 1.2 is not supported: upgrade it"
        )
        return Result.FAILED, f"not served: {', '.join(missing)}", fix
    return Result.OK, f"{LOAD_BALANCERS.api_version}, {VIRTUAL_MACHINES.api_version}", ""


async def check_requests(client: ApiClient) -> Finding:
    """Return in which IP pools addresses can be requested; nothing is wrong if that is not permitted."""
    answer = await request_or_error(reviews.ask_review(client, reviews.RULES_REVIEWS, {"namespace": client.namespace}))
    rights = rights_in(answer)
    if not rights.are_known:
        text = f"not known: {answer}"
    elif rights.are_all:
        text = "possible in all IP pools"
    elif rights.names:
        text = f"possible in IP pools {abbreviate(sorted(rights.names))}"
    else:
        text = f"not possible, so Harvester chooses each address of a pool ({GRANT} permits requests)"
    return Result.OK, text, ""


def _example(cluster: ClusterIdentity) -> Document:
    """Return a load balancer as the controller creates it."""
    service = Service(metadata=ObjectMeta(name="preflight", namespace="default", uid="preflight"))
    return new_load_balancer(service, read_request(service, read_seen(service)), cluster, {})


async def check_admission(harvester: ApiClient, body: Mapping[str, object], cluster: ClusterIdentity) -> Finding:
    """Check whether Harvester's webhook and schema accept a new load balancer; a dry run, so none is created."""
    response, existing = await asyncio.gather(
        answer_within(DRY_RUN_SECONDS, harvester.check_creation(LOAD_BALANCERS, body, namespace=cluster.namespace)),
        request_or_error(harvester.get(LOAD_BALANCERS, "preflight", namespace=cluster.namespace)),
    )
    match response:
        case None:
            return Result.OK, "a load balancer would be admitted (dry run, none was created)", ""
        case errors.Forbidden():
            return Result.SKIPPED, "the credential cannot create load balancers, so no dry run is possible", ""
        case errors.NoResponse() if isinstance(existing, errors.Unreachable):
            text = f"Harvester responds neither to the dry run nor to a read: {existing}"
            fix = remedy_of(existing)
        case errors.NoResponse():
            text = f"Harvester can be read but does not respond to the dry run: {response}"
            fix = f"Most likely an admission webhook hangs. {WEBHOOK_AWAY}, and that its API server reaches them"
        case errors.WebhookFailed():
            text = f"no load balancer can be created or deleted: {response}"
            fix = webhook_advice(response)
        case errors.BadRequest() if "dry run" in str(response):
            return Result.WARNING, f"no dry run is possible: {response}", ""
        case errors.AdmissionDenied() | errors.Invalid() | errors.BadRequest():
            text = f"Harvester would refuse the load balancer: {response}"
            fix = remedy_of_rejection(str(response), cluster).advice
        case errors.Throttled() | errors.Unreachable():
            return Result.WARNING, f"the dry run failed: {response}", "Try again"
        case _:
            text = f"no load balancer can be created: {response}"
            fix = "Check that Harvester's load balancer controller is installed, with its CustomResourceDefinitions"
    return Result.FAILED, text, fix


def _text(checks: Sequence[Document], width: int) -> Iterator[RenderableType]:
    """Yield the table of checks with the fixes, and how many there are with each result.

    On a terminal of this ``width``, a detail with a word that is longer than its column has lines of its own: an
    address or a path can be copied only as a whole.
    """
    yield from row([Text(title, "bold") for title in ("WHERE", "CHECK", "RESULT", "DETAIL")], _WIDTHS)
    room = width - sum(_WIDTHS) - len(_GAP) * len(_WIDTHS)
    for check in checks:
        cells = [check["where"], check["check"], check["result"]]
        detail = check["detail"]
        fits = max(map(len, detail.split()), default=0) <= room
        yield from row([*cells, detail if fits else ""], _WIDTHS)
        if not fits:
            yield from row([detail], indent=4)
        if check["fix"]:
            yield from row([f"→ {check['fix']}"], indent=4)
    counts = Counter(check["result"] for check in checks)
    counted = ", ".join(f"{counts[result]} {result}" for result in Result if counts[result])
    yield Text(f"\n{'NOT READY' if counts[Result.FAILED] else 'READY'}: {counted}.")


_GAP: Final = "  "
"""Between two columns."""
_WIDTHS: Final = (
    len(HARVESTER),
    max(len(permission.title) for permissions in PERMISSIONS.values() for permission in permissions),
    max(map(len, Result)),
)
"""Widths of all columns but the last."""

SPEC: Final = CommandSpec(
    meaning=__doc__,
    usage="preflight [flags]",
    own=(OUTPUT,),
    action=_preflight,
)
