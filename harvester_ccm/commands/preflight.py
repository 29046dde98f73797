"""Checks both clusters as the controller uses them, and prints a remedy for each failure.

Kubeconfigs, TLS, credentials, every permission that is used, API versions, Harvester's webhook, the VMs of the Nodes,
and the cluster name are checked. A failed check leaves out those that depend on it. Nothing is changed.
"""

import asyncio
import ssl
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.clusters import GUEST, HARVESTER, ClusterStore, list_clusters, request_or_error
from harvester_ccm.commands.node_addresses import NODE_ADDRESS_REMEDY, shown_node_addresses
from harvester_ccm.commands.runner import OUTPUT, CommandContext, CommandSpec, Document, table
from harvester_ccm.config import Announcer, Settings
from harvester_ccm.kube import errors, reviews
from harvester_ccm.kube.builtin import EVENTS, LEASES, NAMESPACES
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.objects import ObjectMeta, Resource
from harvester_ccm.kube.tokens import FileToken, token_claims
from harvester_ccm.model.core import CONFIG_MAPS, ENDPOINT_SLICES, NODES, SERVICES, Service
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import GUEST_OS_INFO, INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, VM_CLUSTER
from harvester_ccm.plan.node.match import find_vm
from harvester_ccm.plan.service.kube_vip import NOTE_ANNOTATION, read_state
from harvester_ccm.plan.service.load_balancer import new_load_balancer
from harvester_ccm.plan.service.messages import WEBHOOK_AWAY, remedy
from harvester_ccm.plan.service.request import read_request
from harvester_ccm.plan.service.vip_hosts import announcements_of
from harvester_ccm.remedies import credential_hint, rbac_hint, remedy_of

SOON: Final = timedelta(days=14)
"""A token that expires within this time is reported."""
ANNOUNCER_OTHER: Final = "another program, or kube-vip without notes (--announcer=other)"
"""Who announces the addresses, as far as it is known with this flag."""
_FILES: Final = {HARVESTER: "cloud-config", GUEST: "kubeconfig"}
_REMEDIES: Final = {
    HARVESTER: "Correct --cloud-config or what is in the file, or make a new one (generate_addon.sh, or Rancher)",
    GUEST: "Correct --kubeconfig or KUBECONFIG, or what is in the file; in a pod, leave both out",
}
"""Remedy for a kubeconfig that cannot be used or is not accepted, by cluster."""
_decode_version: Final = msgspec.json.Decoder(dict[str, object]).decode


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


class Check(Struct, frozen=True):
    """A check of ``preflight``."""

    where: str
    """``flags``, ``harvester``, ``guest`` or ``both``."""
    check: str
    result: Result
    detail: str
    advice: str = ""
    """Remedy."""


class Permission(Struct, frozen=True):
    """One verb on one kind of object."""

    resource: Resource[Any]
    verb: str
    required: bool
    """Whether the controller is of no use without it; otherwise the rest works."""
    effect: str
    """The effect of its absence."""
    subresource: str = ""

    @property
    def title(self) -> str:
        """``resource`` or ``resource/subresource``."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def name(self, settings: Settings) -> tuple[str, str]:
        """Return namespace and name of the one object that is used; empty if there are several, or none yet."""
        names = {
            NAMESPACES.plural: ("", "kube-system"),
            CONFIG_MAPS.plural: (NAD_MAPPING_NAMESPACE, NAD_MAPPING_NAME),
            LEASES.plural: (settings.leader_election.namespace, settings.leader_election.name),
        }
        namespace, name = names.get(self.resource.plural, ("", ""))
        # An object that is created has no name yet.
        return namespace, "" if self.verb == "create" else name


_POLLED: Final = "changes are noticed late: the list is read again every minute"
_NO_MAPPING: Final = "the network to device ConfigMap is not kept, so Services with a network wait for their device"
_NOT_ANNOUNCED: Final = "kube-vip does not announce an address that was switched or changed"
_NO_SLICES: Final = (
    "it is not known why kube-vip does not announce a Service, and it does not announce a changed address"
)
_NO_OWNER: Final = "load balancers have no owner annotation, so clusters of one name share them and orphans stay"
_NO_METRICS: Final = "no client can read /metrics of the controller"
_NO_HOSTNAME: Final = "a Node is found only if its VM has the Node's name or system UUID"
_STALE: Final = "load balancers are never kept up to date: address, owner, listeners, backends"
_NO_LEASE: Final = "the controller waits for its Lease forever and does nothing"

PERMISSIONS: Final = {
    HARVESTER: (
        Permission(LOAD_BALANCERS, "get", False, "an existing load balancer is not adopted at once"),
        Permission(LOAD_BALANCERS, "list", True, "load balancers cannot be read"),
        Permission(LOAD_BALANCERS, "watch", False, _POLLED),
        Permission(LOAD_BALANCERS, "create", True, "no Service gets a load balancer"),
        Permission(LOAD_BALANCERS, "update", True, _STALE),
        Permission(LOAD_BALANCERS, "delete", True, "load balancers and their addresses stay when a Service is deleted"),
        Permission(VIRTUAL_MACHINES, "get", False, "the Node of a deleted VM is never deleted"),
        Permission(VIRTUAL_MACHINES, "list", True, "VMs cannot be read"),
        Permission(VIRTUAL_MACHINES, "watch", False, _POLLED),
        Permission(INSTANCES, "list", True, "VM instances, and with them the addresses of Nodes, cannot be read"),
        Permission(INSTANCES, "watch", False, _POLLED),
        Permission(GUEST_OS_INFO, "get", False, _NO_HOSTNAME, "guestosinfo"),
    ),
    GUEST: (
        Permission(SERVICES, "get", False, "orphaned load balancers are never deleted"),
        Permission(SERVICES, "list", True, "Services cannot be read"),
        Permission(SERVICES, "watch", False, _POLLED),
        Permission(SERVICES, "patch", True, "no Service gets an address, and no deletion finishes", "status"),
        Permission(ENDPOINT_SLICES, "list", False, _NO_SLICES),
        Permission(ENDPOINT_SLICES, "patch", False, _NOT_ANNOUNCED),
        Permission(NODES, "get", False, "a Node that is created again is noticed late"),
        Permission(NODES, "list", True, "Nodes cannot be read"),
        Permission(NODES, "watch", False, _POLLED),
        Permission(NODES, "patch", True, "new Nodes keep the uninitialized taint"),
        Permission(NODES, "delete", False, "the Node of a deleted VM stays; delete it"),
        Permission(NODES, "patch", True, "Nodes get no addresses and are not initialized", "status"),
        Permission(EVENTS, "create", False, "there are no Events"),
        Permission(NAMESPACES, "get", False, _NO_OWNER),
        Permission(CONFIG_MAPS, "get", False, _NO_MAPPING),
        Permission(CONFIG_MAPS, "list", False, "Services with a network wait for their device"),
        Permission(CONFIG_MAPS, "watch", False, _POLLED),
        Permission(CONFIG_MAPS, "create", False, _NO_MAPPING),
        Permission(CONFIG_MAPS, "update", False, _NO_MAPPING),
        Permission(reviews.TOKEN_REVIEWS, "create", False, _NO_METRICS),
        Permission(reviews.SUBJECT_ACCESS_REVIEWS, "create", False, _NO_METRICS),
        Permission(LEASES, "get", True, _NO_LEASE),
        Permission(LEASES, "create", True, _NO_LEASE),
        Permission(LEASES, "update", True, _NO_LEASE),
    ),
}
"""The verbs that a controller sends, by cluster, those of one kind of object next to each other.

``tests/apiserver/test_commands_preflight.py`` removes each one in turn. Each is checked with a SelfSubjectAccessReview,
which considers every authorizer of the API server.
"""


def permissions_of(cluster: str, settings: Settings) -> list[Permission]:
    """Return the permissions that the controller uses; the Lease is not used without leader election."""
    return [one for one in PERMISSIONS[cluster] if settings.leader_election.enabled or one.resource is not LEASES]


async def check_permissions(client: ApiClient, where: str, settings: Settings, user: str) -> list[Check]:
    """Return a check for each kind of object."""
    used = permissions_of(where, settings)
    granted = await asyncio.gather(*(request_or_error(_is_granted(client, where, one, settings)) for one in used))
    who = f"to {user}" if user else "to the user of the kubeconfig"
    grantee = f"{who}: install the chart of this version, or add it to its ClusterRole"
    if where == HARVESTER:
        grantee = f"{who}: {rbac_hint(client.namespace)}"
    reviewed = groupby(zip(used, granted, strict=True), key=lambda pair: pair[0].title)
    return [Check(where, title, *_judged(list(pairs), grantee)) for title, pairs in reviewed]


async def _is_granted(client: ApiClient, where: str, permission: Permission, settings: Settings) -> bool:
    namespace, name = permission.name(settings)
    attributes = {
        "namespace": client.namespace if where == HARVESTER else namespace,
        "verb": permission.verb,
        "group": permission.resource.group,
        "resource": permission.resource.plural,
        "subresource": permission.subresource,
        "name": name,
    }
    known = {key: value for key, value in attributes.items() if value}
    return (await reviews.ask_review(client, reviews.ACCESS_REVIEWS, {"resourceAttributes": known})).allowed


def _judged(pairs: Sequence[tuple[Permission, bool | errors.KubeError]], grantee: str) -> Finding:
    """Check the permissions on one kind of object; ``grantee`` says where to grant what is missing."""
    verbs = ", ".join(one.verb for one, _ in pairs)
    missing = [one for one, granted in pairs if granted is False]
    if missing:
        effects = "; ".join(f"{one.verb}: {one.effect}" for one in missing)
        group = f" ({missing[0].resource.group})" if missing[0].resource.group else ""
        advice = f"Grant {', '.join(one.verb for one in missing)} on {missing[0].title}{group} {grantee}"
        result = Result.FAILED if any(one.required for one in missing) else Result.WARNING
        return result, f"may not {effects}", advice
    unknown = next((granted for _, granted in pairs if isinstance(granted, errors.KubeError)), None)
    if unknown is not None:
        result = Result.SKIPPED if isinstance(unknown, errors.Forbidden) else Result.FAILED
        return result, f"unknown: {unknown}", "Check the health and the load of this server"
    return Result.OK, f"may {verbs}", ""


async def _preflight(context: CommandContext) -> int:
    settings, environment = context.settings, context.environment
    checks = [Check("flags", "cluster name", Result.WARNING, text) for text in settings.warnings]
    checks = checks or [Check("flags", "cluster name", Result.OK, f"{settings.harvester.cluster_name!r}")]
    async with AsyncExitStack() as stack:
        (of_harvester, harvester), (of_guest, guest) = await asyncio.gather(
            _check_cluster(HARVESTER, settings, lambda: harvester_credentials(settings.harvester, environment), stack),
            _check_cluster(GUEST, settings, lambda: guest_credentials(settings.guest, environment), stack),
        )
        checks += [*of_harvester, *of_guest]
        if guest is not None and harvester is not None:
            checks += check_content(await list_clusters(settings, guest, harvester))
    context.output.answer({"checks": [msgspec.to_builtins(one) for one in checks]}, preflight_text)
    return EXIT_PROBLEMS if any(one.result is Result.FAILED for one in checks) else EXIT_OK


async def _check_cluster(
    where: str, settings: Settings, load: Callable[[], Credentials], stack: AsyncExitStack
) -> tuple[list[Check], ApiClient | None]:
    """Return the checks of one cluster, and its client if it can be used; ``stack`` closes the client."""
    try:
        credentials = load()
    except errors.CredentialError as error:
        return [Check(where, _FILES[where], Result.FAILED, str(error), _REMEDIES[where])], None
    checks = [Check(where, _FILES[where], *_check_file(credentials, where))]
    client = await stack.enter_async_context(ApiClient(credentials, cluster=where))
    version = await request_or_error(client.read("/version", _decode_version))
    is_usable = isinstance(version, dict | errors.Forbidden)
    who = await request_or_error(reviews.ask_review(client, reviews.SUBJECT_REVIEWS, {})) if is_usable else version
    # Servers before Kubernetes 1.28 do not serve the review.
    if isinstance(who, errors.KubeError) and not isinstance(who, errors.Forbidden | errors.NotServed):
        return [*checks, _unusable(who, credentials, where)], None
    known = f", Kubernetes {version.get('gitVersion')}" if isinstance(version, dict) else ""
    user = "" if isinstance(who, errors.KubeError | dict) else who.user_info.username
    checks += [
        Check(where, "server", Result.OK, f"{credentials.server} answers{known}"),
        Check(where, "TLS", *_check_tls(credentials)),
        Check(where, "credential", *check_credential(credentials, where, user)),
    ]
    if where == HARVESTER:
        checks.append(Check(where, "API versions", *await check_versions(client)))
    if any(one.result is Result.FAILED for one in checks):
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


def _unusable(error: errors.KubeError, credentials: Credentials, where: str) -> Check:
    """Return the failed check of a server that cannot be used; for Harvester it has the remedy of the Events."""
    row, text, advice = "server", str(error), "Check that the address is that of a Kubernetes API server"
    match error:
        case errors.Unauthorized():
            row, advice = "credential", remedy_of(error)
        case errors.CredentialError():
            # The plugin or the token file failed, and nothing was sent.
            row, advice = "credential", _REMEDIES[where]
        case errors.Unreachable():
            row = "TLS" if isinstance(error, errors.NotTrusted) else row
            advice = remedy_of(error)
            if where == GUEST:
                advice = (
                    "Check address, certificate-authority-data and tls-server-name in the kubeconfig, and firewalls"
                )
            if credentials.proxy is not None:
                advice = f"{advice}. The connection goes through a proxy (proxy-url or HTTPS_PROXY)"
        case errors.ApiError():
            text = f"{credentials.server}: HTTP status {error.answer.status}: {error}"
    return Check(where, row, Result.FAILED, text, advice)


def _check_tls(credentials: Credentials) -> Finding:
    if credentials.tls is None:
        return Result.WARNING, "none: the token is sent in clear text", "Use https://"
    if credentials.tls.verify_mode is ssl.CERT_NONE:
        text = "the server's certificate is not verified (insecure-skip-tls-verify)"
        return Result.WARNING, text, "Put certificate-authority-data in the kubeconfig instead"
    return Result.OK, "the server's certificate is verified", ""


def check_credential(credentials: Credentials, where: str, user: str) -> Finding:
    """Check a credential that the server accepts; ``user`` is empty if the server does not report it."""
    if user == "system:anonymous":
        return Result.FAILED, "none is sent: the user is system:anonymous", _REMEDIES[where]
    name = f"accepted, user {user}" if user else "accepted"
    mode = Path(credentials.origin).lstat().st_mode
    # A mounted Secret is a link that only one pod can see.
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        return Result.WARNING, f"{name}; every user of this host may read {credentials.origin}", "Set its mode to 0600"
    # A file is expected to be rotated before its token expires.
    token = None if isinstance(credentials.token, FileToken) else credentials.token.get()
    end, account = token_claims(token)
    if end is None:
        return Result.OK, name, ""
    text = f"{name}, the token expires on {end:%Y-%m-%d %H:%M} UTC"
    if end - datetime.now(UTC) > SOON:
        return Result.OK, text, ""
    return Result.WARNING, f"{text}; it works until then", credential_hint(where, account)


async def check_versions(client: ApiClient) -> Finding:
    """Check that Harvester serves its API in the version that is used."""
    for one in (LOAD_BALANCERS.api_version, VIRTUAL_MACHINES.api_version):
        response = await request_or_error(client.request("GET", f"/apis/{one}"))
        if isinstance(response, errors.NotServed):
            advice = (
                "Check that the server in the cloud-config is Harvester, and that --cloud-config and --kubeconfig are "
                "not swapped. Harvester before 1.2 is not supported: upgrade it"
            )
            return Result.FAILED, f"not served: {one}", advice
        if isinstance(response, errors.KubeError):
            return Result.FAILED, f"unknown: {response}", ""
    return Result.OK, f"{LOAD_BALANCERS.api_version}, {VIRTUAL_MACHINES.api_version}", ""


def _example(cluster: ClusterIdentity) -> Document:
    """Return a load balancer as the controller creates it."""
    service = Service(metadata=ObjectMeta(name="preflight", namespace="default", uid="preflight"))
    return new_load_balancer(service, read_request(service, read_state(service)), cluster, {})


async def check_admission(harvester: ApiClient, body: Mapping[str, object], namespace: str) -> Finding:
    """Check whether Harvester's webhook and schema accept a new load balancer; a dry run, so none is created."""
    response = await request_or_error(harvester.check_creation(LOAD_BALANCERS, body, namespace=namespace))
    match response:
        case None:
            return Result.OK, "a load balancer would be admitted (dry run, none was created)", ""
        case errors.Forbidden():
            return Result.SKIPPED, "the credential cannot create load balancers, so no dry run is possible", ""
        case errors.NoResponse():
            text = f"Harvester can be read but does not respond to the dry run: {response}"
            advice = f"Most likely an admission webhook hangs. {WEBHOOK_AWAY}, and that its API server reaches them"
        case errors.WebhookFailed():
            text, advice = f"no load balancer can be created or deleted: {response}", WEBHOOK_AWAY
        case errors.BadRequest() if "dry run" in str(response):
            return Result.WARNING, f"no dry run is possible: {response}", ""
        case errors.AdmissionDenied() | errors.Invalid() | errors.BadRequest():
            text, advice = f"Harvester would refuse the load balancer: {response}", remedy(str(response))
        case _:
            return Result.WARNING, f"the dry run failed: {response}", ""
    return Result.FAILED, text, advice


def check_content(store: ClusterStore) -> Iterator[Check]:
    """Yield the checks of Nodes and VMs, or why they cannot be read."""
    error = store.problem(NODES, VIRTUAL_MACHINES, INSTANCES)
    for where, name, check in (("both", "Nodes and VMs", check_nodes), (GUEST, "InternalIPs", check_internal_ips)):
        yield Check(where, name, *(check(store) if error is None else (Result.SKIPPED, f"cannot be read: {error}", "")))
    yield Check(GUEST, "announcer", *check_announcer(store))
    yield from _check_service_addresses(store)


def _check_service_addresses(store: ClusterStore) -> Iterator[Check]:
    """Yield a check that failed, if a Service shows the address of a Node."""
    found = [f"{shown.service.metadata.key} ({shown.address} of {shown.node})" for shown in shown_node_addresses(store)]
    if found:
        text = f"Services have the address of a Node in their status: {abbreviate(sorted(found))}"
        yield Check(GUEST, "Service addresses", Result.WARNING, text, NODE_ADDRESS_REMEDY)


def check_announcer(store: ClusterStore) -> Finding:
    """Check which program announces addresses; nothing is wrong if that is not known."""
    error, announcer = store.problem(SERVICES), store.cluster.announcer
    if announcer is Announcer.OTHER:
        return Result.OK, ANNOUNCER_OTHER, ""
    if error is not None:
        return Result.SKIPPED, f"cannot be read: {error}", ""
    if announcements_of(store.services, store.last_announced_at).exist:
        return Result.OK, f"kube-vip: it has noted its node on Services (annotation {NOTE_ANNOTATION})", ""
    if announcer is Announcer.KUBE_VIP:
        return Result.OK, "kube-vip (--announcer=kube-vip); it has noted no node on a Service yet", ""
    text = f"not known: kube-vip has noted no node on a Service yet (annotation {NOTE_ANNOTATION})"
    advice = (
        "Set --announcer=kube-vip if kube-vip announces in ARP mode, or in BGP mode since version 1.0; set "
        "--announcer=other for another program or mode"
    )
    return Result.OK, text, advice


def check_nodes(store: ClusterStore) -> Finding:
    """Check that every Node is a VM, and that no VM of a Node has the label of another cluster."""
    nodes, name = store.nodes.all(), store.cluster.name
    if not nodes:
        return Result.WARNING, "the cluster has no Node", "Is this the right cluster?"
    matches = {one.metadata.name: find_vm(store, one) for one in nodes}
    lost = {node: match.problem for node, match in matches.items() if match.vm is None}
    if lost:
        first = lost[min(lost)]
        text = f"{len(lost)} of {len(nodes)} Nodes have no VM: {abbreviate(sorted(lost))}"
        return Result.WARNING if len(lost) < len(nodes) else Result.FAILED, text, first.message if first else ""
    others = sorted({match.vm.cluster_label for match in matches.values() if match.vm} - {"", name})
    if others:
        advice = (
            f"Set --cluster-name={others[0]} (chart: global.cattle.clusterName). Load balancers that this cluster has "
            f"made under {name!r} keep their addresses with --former-cluster-names={name}, see explain service"
        )
        text = f"--cluster-name is {name!r} and the VMs of the Nodes have label {VM_CLUSTER}={abbreviate(others)}"
        return Result.FAILED, text, advice
    evidence = sorted({str(match.by) for match in matches.values() if match.by})
    return Result.OK, f"the VMs of all {len(nodes)} Nodes are found, by {', '.join(evidence)}", ""


def check_internal_ips(store: ClusterStore) -> Finding:
    """Check that no two Nodes have the same InternalIP."""
    names: dict[str, list[str]] = {}
    for node, entry in ((one, entry) for one in store.nodes.all() for entry in one.status.addresses):
        if entry.type == "InternalIP":
            names.setdefault(entry.address, []).append(node.metadata.name)
    shared = sorted(f"{address} ({abbreviate(sorted(nodes))})" for address, nodes in names.items() if len(nodes) > 1)
    if not shared:
        return Result.OK, "no two Nodes have the same", ""
    causes = "--node-ip of the kubelets, static addresses, and machine IDs that were cloned with an image"
    advice = f"Give each Node its own address. Check {causes}"
    return Result.WARNING, f"Nodes have the same InternalIP: {abbreviate(shared)}", advice


def preflight_text(document: Document) -> Iterator[RenderableType]:
    """Yield the table of all checks, with the advice below each row, and the summary."""
    checks = document["checks"]
    rows = [{key: one[key] for key in ("where", "check", "result", "detail")} for one in checks]
    yield from table(rows, below=[f"→ {one['advice']}" if one["advice"] else "" for one in checks])
    counts = Counter(one["result"] for one in checks)
    counted = ", ".join(f"{counts[result]} {result}" for result in Result if counts[result])
    yield Text(f"\n{'NOT READY' if counts[Result.FAILED] else 'READY'}: {counted}.")


SPEC: Final = CommandSpec(
    meaning=__doc__,
    usages=("preflight [flags]",),
    own=(OUTPUT,),
    action=_preflight,
)
