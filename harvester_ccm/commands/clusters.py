"""Both clusters, asked with the running program's credentials, only for reading, each question with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from harvester_ccm.commands.inventory import ENDPOINT_SLICES, IDENTITY_NAMESPACE, EndpointSlice, Inventory
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, ConfigurationError, CredentialError, NotFound, Unreachable
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_in_cluster, load_kubeconfig
from harvester_ccm.model.core import CONFIG_MAPS, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE

SECONDS: Final = 5.0
"""Time limit of one question."""

T = TypeVar("T")


@dataclass(frozen=True)
class Clusters:
    """The two API servers."""

    guest: ApiClient
    harvester: ApiClient


@dataclass(frozen=True)
class Asked(Generic[T]):
    """The answer to a question, or why there is none."""

    answer: T | None = None
    error: CCMError | None = None


async def ask(question: Awaitable[T], *, seconds: float = SECONDS) -> Asked[T]:
    """Return the answer or the error; no answer within the time limit is an error too."""
    try:
        async with asyncio.timeout(seconds):
            return Asked(answer=await question)
    except TimeoutError:
        return Asked(error=Unreachable(f"no answer within {seconds:g} s"))
    except CCMError as error:
        return Asked(error=error)


def harvester_credentials(settings: Settings) -> Credentials:
    """Return the credentials of --cloud-config. Raises CredentialError."""
    cloud_config = settings.harvester.cloud_config
    if cloud_config is None:
        raise CredentialError("--cloud-config is not set; expected the path of a kubeconfig for Harvester")
    return load_kubeconfig(cloud_config)


def guest_credentials(settings: Settings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials for the guest: --kubeconfig, KUBECONFIG or the pod's. Raises CredentialError."""
    kubeconfig, server = settings.guest.kubeconfig, settings.guest.master
    credentials = load_kubeconfig(kubeconfig) if kubeconfig else load_in_cluster(environment)
    return replace(credentials, server=server.rstrip("/")) if server else credentials


@asynccontextmanager
async def open_clusters(settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Clusters]:
    """Open both clusters. Raises CredentialError for Harvester's, ConfigurationError for the guest's file."""
    try:
        harvester = harvester_credentials(settings)
    except CredentialError as error:
        raise CredentialError(f"cannot use --cloud-config: {error}") from error
    try:
        guest = guest_credentials(settings, environment)
    except CredentialError as error:
        raise ConfigurationError([f"guest cluster: {error}"]) from error
    async with ApiClient(guest, cluster="guest") as one, ApiClient(harvester, cluster="harvester") as other:
        yield Clusters(one, other)


async def read_inventory(clusters: Clusters) -> Inventory:
    """Return what the running program has in its caches.

    Raises the error of the guest when Services or Nodes cannot be read. What Harvester does not give is a problem in
    the inventory.
    """
    guest, harvester = clusters.guest, clusters.harvester
    namespace = harvester.namespace
    of_guest = asyncio.gather(
        ask(guest.list(SERVICES)),
        ask(guest.list(NODES)),
        ask(guest.get(CONFIG_MAPS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)),
        ask(guest.get(NAMESPACES, IDENTITY_NAMESPACE)),
    )
    of_harvester = asyncio.gather(
        ask(harvester.list(LOAD_BALANCERS, namespace=namespace)),
        ask(harvester.list(VIRTUAL_MACHINES, namespace=namespace)),
        ask(harvester.list(INSTANCES, namespace=namespace)),
    )
    (services, nodes, mapping, home), (balancers, machines, instances) = await of_guest, await of_harvester
    problems = {
        LOAD_BALANCERS.plural: balancers.error,
        VIRTUAL_MACHINES.plural: machines.error,
        INSTANCES.plural: instances.error,
    }
    inventory = Inventory(
        services=_required(services).items,
        nodes=_required(nodes).items,
        config_maps=(mapping.answer,) if mapping.answer else (),
        namespaces=(home.answer,) if home.answer else (),
        load_balancers=balancers.answer.items if balancers.answer else (),
        machines=machines.answer.items if machines.answer else (),
        instances=instances.answer.items if instances.answer else (),
        problems={plural: error for plural, error in problems.items() if error is not None},
    )
    return inventory.assuming(_unread_mapping(mapping.error), _unread_identity(home.error))


def _required(asked: Asked[T]) -> T:
    if asked.answer is None:
        raise asked.error or CCMError("there was no answer")
    return asked.answer


async def read_endpoint_slice(harvester: ApiClient, load_balancer: str) -> Asked[EndpointSlice]:
    """Return the backends of a VM load balancer with their health, where the credential may read that."""
    return await ask(harvester.get(ENDPOINT_SLICES, load_balancer, namespace=harvester.namespace))


def _unread_mapping(error: CCMError | None) -> str:
    if error is None or isinstance(error, NotFound):
        return ""
    name = f"{NAD_MAPPING_NAMESPACE}/{NAD_MAPPING_NAME}"
    return f"ConfigMap {name} cannot be read: no device of a network is known ({error})"


def _unread_identity(error: CCMError | None) -> str:
    if error is None:
        return ""
    return f"namespace {IDENTITY_NAMESPACE} cannot be read: load balancers are judged without owner marks ({error})"
