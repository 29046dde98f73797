"""Both clusters as a command reads them: their clients, and one store with everything that the plans read.

The store has the same indexes as the caches of the controllers, and is filled with complete lists.
"""

import asyncio
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from harvester_ccm.access import both_credentials
from harvester_ccm.commands.runner import CommandContext
from harvester_ccm.config import Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.flags import parse_command_line
from harvester_ccm.flags.settings import flags_of_cluster
from harvester_ccm.kube.builtin import LEASES, NAMESPACES, Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.documents import Page
from harvester_ccm.kube.errors import Forbidden, KubeError, NoResponse
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.kube.objects import ObjectT, Resource
from harvester_ccm.kube.reviews import REFUSALS, RULES_REVIEWS, ReviewStatus, ask_review
from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import CONFIG_MAPS, NODES, SERVICE_CIDRS, SERVICES
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES, ClusterIdentity, LoadBalancer
from harvester_ccm.names import LEASE_FLAGS, NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, PROGRAM
from harvester_ccm.plan.node.match import vm_names
from harvester_ccm.plan.node.vms import NODE_INDEXES, VM_INDEXES, VMI_INDEXES, NodeStore
from harvester_ccm.plan.service.allocation.address_pools import (
    ObservedPool,
    PoolRights,
    addresses_of_servers,
    rights_of,
)
from harvester_ccm.plan.service.allocation.state import is_in_progress
from harvester_ccm.plan.service.announcing.endpoints import Endpoints
from harvester_ccm.plan.service.load_balancer.vm_spec import backends_of
from harvester_ccm.plan.service.ownership.owner import may_be_of_cluster
from harvester_ccm.plan.service.ownership.virtual_ips import VirtualIPIndex
from harvester_ccm.plan.service.sharing.ranking import Rankings
from harvester_ccm.plan.service.store import LOAD_BALANCER_INDEXES, SERVICE_INDEXES, ServiceStore

GUEST: Final = "guest"
HARVESTER: Final = "harvester"
REQUEST_SECONDS: Final = 8.0
"""Time limit of a request: a person gets the whole answer within ten seconds, also if a server does not respond."""
FIRST_SECONDS: Final = 1.0
"""Time without output after which a line is printed."""
SLOW_SECONDS: Final = 2.0
"""Time of a request from which a server is slow: an API server responds to a list of 500 objects in tenths of one."""
TITLES: Final = {GUEST: "the guest cluster", HARVESTER: "Harvester"}

T = TypeVar("T")


async def request_or_error(request: Awaitable[T]) -> T | KubeError:
    """Return the response of a request, or its error."""
    try:
        return await request
    except KubeError as error:
        return error


async def answer_within(seconds: float, request: Awaitable[T]) -> T | KubeError:
    """Return the response of a request, its error, or that of a server that does not respond in this time."""
    try:
        async with asyncio.timeout(seconds):
            return await request_or_error(request)
    except TimeoutError:
        return NoResponse(f"no answer within {seconds:g} s")


class TimedClient(ApiClient):
    """A client that notes how long its server takes."""

    def __init__(self, credentials: Credentials, *, cluster: str) -> None:
        super().__init__(credentials, cluster=cluster, observer=self.note, timeout=REQUEST_SECONDS)
        self.seconds = 0.0
        """The longest response time; 0 before the first response."""

    def note(self, _cluster: str, method: str, _path: str, status: int, seconds: float) -> None:
        """Record a request. One without a response is an error, and a dry run depends on webhooks as well."""
        if status and method == "GET":
            self.seconds = max(seconds, self.seconds)

    @property
    def is_slow(self) -> bool:
        """Whether a response took unusually long."""
        return self.seconds >= SLOW_SECONDS


class Connection(Struct, frozen=True):
    """The clients of both clusters."""

    guest: TimedClient
    harvester: TimedClient


@contextmanager
def sign_of_life() -> Iterator[None]:
    """Print a line if the block takes longer than a person expects: a request has a limit of several seconds."""

    def report() -> None:
        sys.stderr.write(f"{PROGRAM}: waiting for Harvester or the guest cluster ...\n")
        sys.stderr.flush()

    timer = asyncio.get_running_loop().call_later(FIRST_SECONDS, report)
    try:
        yield
    finally:
        timer.cancel()


@asynccontextmanager
async def open_clusters(context: CommandContext) -> AsyncIterator[Connection]:
    """Yield the clients of the guest cluster and of Harvester, and report if that takes long.

    Raises CredentialError for Harvester's file, ConfigurationError for that of the guest cluster.
    """
    of_guest, of_harvester = both_credentials(context.settings, context.environment)
    async with (
        TimedClient(of_guest, cluster=GUEST) as guest,
        TimedClient(of_harvester, cluster=HARVESTER) as harvester,
    ):
        with sign_of_life():
            yield Connection(guest, harvester)


class ClusterStore(ServiceStore, NodeStore):
    """Everything that the plans read, at one point in time."""

    def __init__(self, cluster: ClusterIdentity, lists: Mapping[str, Page[Any] | KubeError] = {}) -> None:
        """``lists`` has the list of each resource by its plural, or the reason why it could not be read."""
        self.lists = lists
        self.cluster = cluster
        self.services = self._listed(SERVICES, SERVICE_INDEXES)
        self.rankings = Rankings(self.services, cluster)
        self.nodes = self._listed(NODES, NODE_INDEXES)
        self.config_maps = self._listed(CONFIG_MAPS, {})
        self.load_balancers = self._listed(LOAD_BALANCERS, LOAD_BALANCER_INDEXES)
        self.vms = self._listed(VIRTUAL_MACHINES, VM_INDEXES)
        self.vmis = self._listed(INSTANCES, VMI_INDEXES)
        self.virtual_ips = VirtualIPIndex(self.services, self.load_balancers, cluster)
        self.pool_rights = rights_in(lists.get(RULES_REVIEWS.plural))
        self.pools: dict[str, ObservedPool] = {}
        """The IP pools in which Services request an address, if they were read."""
        self.endpoints: dict[str, Endpoints] = {}
        """The endpoints of a Service by its key, if they were read."""
        self.unserved: set[str] = set()
        """Keys of the Services that have endpoints, none of which serves."""
        self.leases: Sequence[Lease] = ()
        """Those beside the Lease of the controller; empty if they cannot be listed, as in its pod."""
        self.service_cidrs: Sequence[str] = ()
        """Ranges of cluster IPs; empty if they cannot be listed, as in the pod and before Kubernetes 1.33."""
        self.backends = backends_of(self.nodes.all(), vm_names(self)) if self.nodes.synced else None
        self.taken = datetime.now(UTC)
        """When the lists were read."""

    def _listed(
        self, resource: Resource[ObjectT], indexes: Mapping[str, Callable[[ObjectT], Iterable[str]]]
    ) -> Store[ObjectT]:
        found = self.lists.get(resource.plural)
        if isinstance(found, Page):
            return Store(found.items, indexes, unread=found.unread)
        return Store((), indexes, problem=found)

    def own_load_balancers(self) -> Iterator[LoadBalancer]:
        """Yield the load balancers that may be those of this cluster."""
        for load_balancer in self.load_balancers.all():
            if may_be_of_cluster(load_balancer, self.cluster):
                yield load_balancer

    @cached_property
    def creation_in_progress(self) -> bool:
        """Whether Harvester allocates or releases an address for this cluster, for which the next creation waits."""
        return any(map(is_in_progress, self.own_load_balancers()))

    def problem(self, *resources: Resource[Any]) -> KubeError | None:
        """Return why one of these resources cannot be read, or None."""
        answers = (self.lists.get(resource.plural) for resource in resources)
        return next((answer for answer in answers if isinstance(answer, KubeError)), None)

    @property
    def harvester_problem(self) -> KubeError | None:
        """Why a collection of Harvester cannot be read."""
        return self.problem(LOAD_BALANCERS, VIRTUAL_MACHINES, INSTANCES)

    @property
    def notes(self) -> list[str]:
        """Collections and objects that cannot be read, and why.

        A collection that has the error of the load balancers is left out.
        """
        known = str(self.load_balancers.problem)
        notes = []
        for plural, answer in self.lists.items():
            if isinstance(answer, KubeError) and str(answer) != known:
                notes.append(f"cannot read {plural}: {answer}{_fix_of(answer)}")
            if isinstance(answer, Page) and answer.unread:
                faults = [f"{item.key}: {item.fault}" for item in answer.unread.values()]
                notes.append(f"cannot decode {plural} {abbreviate(faults)}")
        return notes


def rights_in(answer: ReviewStatus | Page[Any] | KubeError | None) -> PoolRights:
    """Return the IP pools of a review in which an address can be requested; an absent one grants none.

    They are not known if Harvester could not answer.
    """
    if isinstance(answer, ReviewStatus):
        return rights_of(answer.resource_rules or ())
    return PoolRights(are_known=not isinstance(answer, KubeError) or isinstance(answer, REFUSALS))


def _fix_of(error: KubeError) -> str:
    return ". preflight lists each missing permission with its effect" if isinstance(error, Forbidden) else ""


def settings_of_leader(context: CommandContext, leases: Page[Lease] | KubeError) -> tuple[Settings, str]:
    """Return the settings with the flags that the leader has noted on its Lease, and why its name is not known.

    Under a wrong name, every load balancer of the cluster would look like that of another one. In the pod, all flags
    are those of the controller.
    """
    settings = context.settings
    name = settings.leader_election.name
    found = () if isinstance(leases, KubeError) else leases.items
    noted = next((_noted_flags(lease) for lease in found if lease.metadata.name == name), None)
    if noted is not None and not context.is_in_pod:
        return context.settings_with(noted), ""
    if context.is_named:
        return settings, ""
    problem = f"no controller has noted its flags on Lease {name}"
    if isinstance(leases, KubeError):
        problem = f"the Leases, one of which has the flags of the controller, cannot be read: {leases}"
    return settings, (
        f"add --cluster-name=NAME, the name of this cluster: {problem}. The controller has it in its flags: "
        "kubectl -n kube-system get deployments,daemonsets -o yaml | grep cluster-name"
    )


def _noted_flags(lease: Lease) -> tuple[str, ...] | None:
    """Return the flags that the leader has noted, without any that this version does not have; None for none."""
    noted = lease.metadata.annotation(LEASE_FLAGS)
    try:
        words = shlex.split(noted or "")
    except ValueError:
        return None
    return None if noted is None else flags_of_cluster(parse_command_line(words).given)


async def list_clusters(
    context: CommandContext, guest: ApiClient, harvester: ApiClient
) -> tuple[ClusterStore, Settings, str]:
    """Return the store of both clusters, the settings for it, and why the name of the cluster is not known.

    A collection that cannot be listed has its error.
    """
    namespace = harvester.namespace
    mapping = {"fieldSelector": f"metadata.name={NAD_MAPPING_NAME}"}
    requests: dict[Resource[Any], Awaitable[Any]] = {
        LOAD_BALANCERS: harvester.list(LOAD_BALANCERS, namespace=namespace),
        VIRTUAL_MACHINES: harvester.list(VIRTUAL_MACHINES, namespace=namespace),
        INSTANCES: harvester.list(INSTANCES, namespace=namespace),
        SERVICES: guest.list(SERVICES),
        NODES: guest.list(NODES),
        RULES_REVIEWS: ask_review(harvester, RULES_REVIEWS, {"namespace": namespace}),
        CONFIG_MAPS: guest.list(CONFIG_MAPS, namespace=NAD_MAPPING_NAMESPACE, params=mapping),
        NAMESPACES: guest.get(NAMESPACES, IDENTITY_NAMESPACE),
        LEASES: guest.list(LEASES, namespace=context.settings.leader_election.namespace),
        SERVICE_CIDRS: guest.list(SERVICE_CIDRS),
    }
    responses = await asyncio.gather(*map(request_or_error, requests.values()))
    found = {resource.plural: one for resource, one in zip(requests, responses, strict=True)}
    leases = found.pop(LEASES.plural)
    service_cidrs = found.pop(SERVICE_CIDRS.plural)
    home = found[NAMESPACES.plural]
    uid = "" if isinstance(home, KubeError) else home.metadata.uid
    settings, name_problem = settings_of_leader(context, leases)
    store = ClusterStore(ClusterIdentity.of(settings, namespace, uid), found)
    store.leases = () if isinstance(leases, KubeError) else leases.items
    if isinstance(service_cidrs, Page):
        store.service_cidrs = [text for entry in service_cidrs.items for text in entry.spec.cidrs]
    store.api_servers = addresses_of_servers(guest.credentials.server, harvester.credentials.server)
    return store, settings, name_problem


class _Served(Struct):
    name: str = ""


class _ResourceList(Struct):
    """The resources of an API version, from discovery."""

    resources: tuple[_Served, ...] = ()


_decode_resources: Final = msgspec.json.Decoder(_ResourceList).decode


async def served_resources(client: ApiClient, api_version: str) -> set[str] | KubeError:
    """Return the names of the resources that a server serves in an API version, or the error of the request."""
    found = await request_or_error(client.read(f"/apis/{api_version}", _decode_resources))
    return found if isinstance(found, KubeError) else {resource.name for resource in found.resources}


def _has(served: set[str] | KubeError, resource: Resource[Any]) -> bool:
    return not isinstance(served, KubeError) and resource.plural in served


async def is_harvester(client: ApiClient) -> bool:
    """Return whether a server is a Harvester: only Harvester serves load balancers of its own."""
    return _has(await served_resources(client, LOAD_BALANCERS.api_version), LOAD_BALANCERS)


GUEST_FIX: Final = (
    "Set --kubeconfig to a kubeconfig of the guest cluster, or choose its context with kubectl config use-context"
)
"""Fix for a kubeconfig that leads to Harvester instead of the guest cluster."""


def guest_is_harvester(client: ApiClient) -> str:
    """Return what is wrong with a kubeconfig that leads to Harvester instead of the guest cluster."""
    origin = client.credentials.origin
    return f"the kubeconfig {origin} leads to a Harvester ({client.credentials.server}), not to the guest cluster"


def require_content(store: ClusterStore, name_problem: str) -> None:
    """Raise the error of clusters of which nothing can be said.

    That is KubeError if Services or Nodes cannot be listed, and ConfigurationError if the name of the cluster is not
    known.
    """
    error = store.problem(SERVICES, NODES)
    if error is not None:
        if store.harvester_problem is not None:
            error.add_note(f"Harvester: {store.harvester_problem}")
        raise error
    if name_problem:
        raise ConfigurationError([name_problem])
