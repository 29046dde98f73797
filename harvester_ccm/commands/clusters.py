"""Both clusters, asked with the running program's credentials, only for reading, each question with a time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from harvester_ccm.access import both_credentials
from harvester_ccm.commands.inventory import ENDPOINT_SLICES, EndpointSlice, Inventory
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, CredentialError, NotFound, NotServed, Unreachable
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.kube.versions import versions_serving
from harvester_ccm.model.core import CONFIG_MAPS, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import (
    INSTANCES,
    LOAD_BALANCERS,
    SINCE_1_2,
    VIRTUAL_MACHINES,
    LoadBalancer,
    capabilities_of,
    choose_load_balancers,
)
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE

SECONDS: Final = 5.0
"""Time limit of one question."""
LIST_SECONDS: Final = 30.0
"""Time limit for reading a whole collection, which may take many requests."""

T = TypeVar("T")


@dataclass(frozen=True)
class Clusters:
    """The two API servers."""

    guest: ApiClient
    harvester: ApiClient


@dataclass(frozen=True)
class Balancers:
    """The load balancers of a namespace in Harvester, and the version they were read in."""

    resource: Resource[LoadBalancer]
    items: tuple[LoadBalancer, ...]


@dataclass(frozen=True)
class Asked(Generic[T]):
    """The answer to a question, or why there is none."""

    answer: T | None = None
    error: CCMError | None = None


async def ask(question: Awaitable[T], *, seconds: float | None = None) -> Asked[T]:
    """Return the answer or the error; no answer within the time limit, ``SECONDS`` unless told, is an error too."""
    limit = SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(limit):
            return Asked(answer=await question)
    except TimeoutError:
        return Asked(error=no_answer(limit))
    except CCMError as error:
        return Asked(error=error)


async def ask_all(question: Awaitable[T]) -> Asked[T]:
    """Return a whole collection or the error."""
    return await ask(question, seconds=LIST_SECONDS)


def no_answer(seconds: float) -> Unreachable:
    """Return the error for a question that was not answered in this time."""
    return Unreachable(f"no answer within {seconds:g} s")


def unusable_cloud_config(error: CredentialError) -> CredentialError:
    """Return the error to raise where Harvester's credentials cannot be used."""
    return CredentialError(f"cannot use --cloud-config: {error}")


@asynccontextmanager
async def open_clusters(settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Clusters]:
    """Open both clusters. Raises CredentialError for Harvester's, ConfigurationError for the guest's file."""
    try:
        guest, harvester = both_credentials(settings, environment)
    except CredentialError as error:
        raise unusable_cloud_config(error) from error
    async with ApiClient(guest, cluster="guest") as one, ApiClient(harvester, cluster="harvester") as other:
        yield Clusters(one, other)


async def read_load_balancers(harvester: ApiClient, namespace: str) -> Balancers:
    """Return the load balancers in the version that the running program would choose."""

    async def read(resource: Resource[LoadBalancer]) -> Balancers:
        return Balancers(resource, (await harvester.list(resource, namespace=namespace)).items)

    try:
        return await read(LOAD_BALANCERS)
    except NotServed:
        served = await versions_serving(harvester, LOAD_BALANCERS.group, LOAD_BALANCERS.plural)
        chosen = choose_load_balancers(served, LOAD_BALANCERS)
        if chosen == LOAD_BALANCERS:
            raise
        return await read(chosen)


async def read_inventory(clusters: Clusters) -> Inventory:
    """Return what the running program has in its caches.

    Raises the error of the guest when Services or Nodes cannot be read. What Harvester does not give is a problem in
    the inventory.
    """
    guest, harvester = await asyncio.gather(read_guest(clusters.guest), read_harvester(clusters.harvester))
    problems = guest.problems
    for resource in (SERVICES.plural, NODES.plural):
        if resource in problems:
            raise problems[resource]
    assumptions = _unread_mapping(problems.get(CONFIG_MAPS.plural)), _unread_identity(problems.get(NAMESPACES.plural))
    return in_both(guest, harvester).assuming(*assumptions)


async def read_guest(client: ApiClient) -> Inventory:
    """Return what the program reads of the guest cluster; what cannot be read is a problem in the inventory."""
    services, nodes, mapping, home = await asyncio.gather(
        ask_all(client.list(SERVICES)),
        ask_all(client.list(NODES)),
        ask(client.get(CONFIG_MAPS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE)),
        ask(client.get(NAMESPACES, IDENTITY_NAMESPACE)),
    )
    asked: dict[str, Asked[Any]] = {
        SERVICES.plural: services,
        NODES.plural: nodes,
        CONFIG_MAPS.plural: mapping,
        NAMESPACES.plural: home,
    }
    return Inventory(
        services=services.answer.items if services.answer else (),
        nodes=nodes.answer.items if nodes.answer else (),
        config_maps=(mapping.answer,) if mapping.answer else (),
        namespaces=(home.answer,) if home.answer else (),
        problems=_problems(asked),
    )


async def read_harvester(client: ApiClient) -> Inventory:
    """Return what the program reads of Harvester; what cannot be read is a problem in the inventory."""
    namespace = client.namespace
    balancers, vms, vmis = await asyncio.gather(
        ask_all(read_load_balancers(client, namespace)),
        ask_all(client.list(VIRTUAL_MACHINES, namespace=namespace)),
        ask_all(client.list(INSTANCES, namespace=namespace)),
    )
    asked: dict[str, Asked[Any]] = {
        LOAD_BALANCERS.plural: balancers,
        VIRTUAL_MACHINES.plural: vms,
        INSTANCES.plural: vmis,
    }
    return Inventory(
        load_balancers=balancers.answer.items if balancers.answer else (),
        capabilities=capabilities_of(balancers.answer.resource.api_version) if balancers.answer else SINCE_1_2,
        vms=vms.answer.items if vms.answer else (),
        vmis=vmis.answer.items if vmis.answer else (),
        unread=frozenset().union(*(one.answer.unread for one in (vms, vmis) if one.answer)),
        problems=_problems(asked),
    )


def in_both(guest: Inventory, harvester: Inventory) -> Inventory:
    """Return the guest's objects and Harvester's together."""
    return replace(
        harvester,
        services=guest.services,
        nodes=guest.nodes,
        config_maps=guest.config_maps,
        namespaces=guest.namespaces,
        problems={**guest.problems, **harvester.problems},
    )


def _problems(asked: dict[str, Asked[Any]]) -> dict[str, CCMError]:
    return {plural: one.error for plural, one in asked.items() if one.error is not None}


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
