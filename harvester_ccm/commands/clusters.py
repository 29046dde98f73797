"""Both clusters, asked with the running program's credentials, only for reading, each question with a time limit."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harvester_ccm.access import both_credentials
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, CredentialError, NotFound, Unreachable
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.identity import IDENTITY_NAMESPACE
from harvester_ccm.model.core import CONFIG_MAPS, NAMESPACES, NODES, SERVICES
from harvester_ccm.model.harvester import INSTANCES, LOAD_BALANCERS, VIRTUAL_MACHINES
from harvester_ccm.model.meta import Resource
from harvester_ccm.names import NAD_MAPPING_NAME, NAD_MAPPING_NAMESPACE, PROGRAM
from harvester_ccm.redaction import one_line

SLOW_SECONDS: Final = 1.0
"""After this time without an answer it is said who is waited for."""
SECONDS: Final = 5.0
"""Time limit of one question."""
LIST_SECONDS: Final = 30.0
"""Time limit for reading a whole collection, which may take many requests."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Clusters(Struct, frozen=True):
    """The two API servers."""

    guest: ApiClient
    harvester: ApiClient


class AskingClient(ApiClient):
    """Says on standard error, once, that a server takes its time: whoever called the command is waiting."""

    async def request(self, method: str, path: str, **more: Any) -> bytes:
        """Send one request as every client does."""
        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._say_that_it_is_slow)
        try:
            return await super().request(method, path, **more)
        finally:
            timer.cancel()

    def _say_that_it_is_slow(self) -> None:
        if not self._said:
            self._said = True
            which = "Harvester" if self.cluster == "harvester" else "this cluster"
            sys.stderr.write(f"{PROGRAM}: waiting for {which} at {one_line(self.credentials.server)} ...\n")
            sys.stderr.flush()

    _said = False


class Asked(Struct, Generic[T_co], frozen=True):
    """The answer to a question, or why there is none."""

    answer: T_co | None = None
    error: CCMError | None = None


async def ask(question: Awaitable[T], *, seconds: float | None = None) -> Asked[T]:
    """Return the answer or the error; no answer within the time limit, ``SECONDS`` unless told, is an error too."""
    limit = SECONDS if seconds is None else seconds
    try:
        async with asyncio.timeout(limit):
            return Asked(answer=await question)
    except TimeoutError:
        return Asked(error=Unreachable(f"no answer within {limit:g} s"))
    except CCMError as error:
        return Asked(error=error)


async def ask_all(question: Awaitable[T]) -> Asked[T]:
    """Return a whole collection or the error."""
    return await ask(question, seconds=LIST_SECONDS)


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
    async with AskingClient(guest, cluster="guest") as one, AskingClient(harvester, cluster="harvester") as other:
        yield Clusters(one, other)


async def read_inventory(clusters: Clusters) -> Inventory:
    """Return what the controller has in its caches. An error of Harvester is a problem in the inventory.

    Raises the error of the guest cluster if Services or Nodes cannot be read.
    """
    guest, harvester = await asyncio.gather(read_guest(clusters.guest), read_harvester(clusters.harvester))
    for resource in (SERVICES.plural, NODES.plural):
        if resource in guest.problems:
            error = guest.problems[resource]
            if harvester.harvester_away is not None:
                error.add_note(f"Harvester: {harvester.harvester_away}")
            raise error
    return in_both(guest, harvester)


async def read_guest(client: ApiClient) -> Inventory:
    """Return what the program reads of the guest cluster; what cannot be read is a problem in the inventory."""
    problems: dict[str, CCMError] = {}
    mapping = ask(client.get(CONFIG_MAPS, NAD_MAPPING_NAME, namespace=NAD_MAPPING_NAMESPACE))
    identity = ask(client.get(NAMESPACES, IDENTITY_NAMESPACE))
    services, nodes, config_map, home = await asyncio.gather(
        _read(SERVICES, ask_all(client.list(SERVICES)), problems),
        _read(NODES, ask_all(client.list(NODES)), problems),
        _read(CONFIG_MAPS, mapping, problems),
        _read(NAMESPACES, identity, problems),
    )
    if isinstance(problems.get(CONFIG_MAPS.plural), NotFound):
        del problems[CONFIG_MAPS.plural]
    for error in problems.values():
        # Who does not answer in time says nothing, not even who it is.
        error.cluster = client.cluster
    return Inventory(
        services=services.items if services else (),
        nodes=nodes.items if nodes else (),
        config_maps=(config_map,) if config_map else (),
        cluster_uid=home.metadata.uid if home else "",
        problems=problems,
    )


async def read_harvester(client: ApiClient) -> Inventory:
    """Return what the program reads of Harvester; what cannot be read is a problem in the inventory."""
    problems: dict[str, CCMError] = {}
    namespace = client.namespace
    balancers, vms, vmis = await asyncio.gather(
        _read(LOAD_BALANCERS, ask_all(client.list(LOAD_BALANCERS, namespace=namespace)), problems),
        _read(VIRTUAL_MACHINES, ask_all(client.list(VIRTUAL_MACHINES, namespace=namespace)), problems),
        _read(INSTANCES, ask_all(client.list(INSTANCES, namespace=namespace)), problems),
    )
    return Inventory(
        namespace=namespace,
        load_balancers=balancers.items if balancers else (),
        vms=vms.items if vms else (),
        vmis=vmis.items if vmis else (),
        unread=frozenset().union(*(one.unread for one in (vms, vmis) if one)),
        problems=problems,
    )


async def _read(resource: Resource[Any], question: Awaitable[Asked[T]], problems: dict[str, CCMError]) -> T | None:
    """Return the answer; where there is none, the reason is one of the problems."""
    asked = await question
    if asked.error is not None:
        problems[resource.plural] = asked.error
    return asked.answer


def in_both(guest: Inventory, harvester: Inventory) -> Inventory:
    """Return the guest's objects and Harvester's together."""
    return replace(
        harvester,
        services=guest.services,
        nodes=guest.nodes,
        config_maps=guest.config_maps,
        cluster_uid=guest.cluster_uid,
        problems={**guest.problems, **harvester.problems},
    )
