"""Which versions of its resources a Harvester serves: switched on a running API server, as an upgrade does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import yaml

from devenv.harvester.records import LOAD_BALANCERS, LOAD_BALANCERS_V1ALPHA1, POOLS
from devenv.watch import Document, documents
from harvester_ccm.errors import Conflict, NotServed, Throttled
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.versions import versions_serving

DEFINITIONS: Final = documents(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
SWITCH_SECONDS: Final = 20.0
POLL_SECONDS: Final = 0.05
_FILES: Final = Path(__file__).parent.parent / "crds"


async def serve_before_1_2(client: ApiClient) -> None:
    """Let the API server serve and store load balancers in v1alpha1 only, and no IP pools."""
    await _put(client, _old_balancers(_read("loadbalancers")))
    await _put(client, _unserved(_read("ippools")))
    await _settled(client, ("v1alpha1",), pools=False)


async def serve_now(client: ApiClient) -> None:
    """Let the API server serve what Harvester serves since 1.2; what is stored stays as it is."""
    await _put(client, _read("ippools"))
    await _put(client, _read("loadbalancers"))
    await _settled(client, ("v1beta1", "v1alpha1"), pools=True)


def _read(name: str) -> Document:
    document: Document = yaml.safe_load((_FILES / f"{name}.yaml").read_text())
    return document


def _old_balancers(definition: Document) -> Document:
    versions = [
        {
            **{key: value for key, value in one.items() if not key.startswith("deprecat")},
            "served": one["name"] == "v1alpha1",
            "storage": one["name"] == "v1alpha1",
        }
        for one in definition["spec"]["versions"]
    ]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


def _unserved(definition: Document) -> Document:
    versions = [{**one, "served": False} for one in definition["spec"]["versions"]]
    return {**definition, "spec": {**definition["spec"], "versions": versions}}


async def _put(client: ApiClient, definition: Document) -> None:
    name = definition["metadata"]["name"]
    while True:
        present = await client.get(DEFINITIONS, name)
        metadata = {**definition["metadata"], "resourceVersion": present["metadata"]["resourceVersion"]}
        try:
            await client.replace(DEFINITIONS, name, {**definition, "metadata": metadata})
        except Conflict:
            # The API server writes the status of a definition by itself.
            continue
        return


async def _settled(client: ApiClient, versions: tuple[str, ...], *, pools: bool) -> None:
    """Return when discovery and the resources themselves say the same. Raises TimeoutError."""
    group, plural = LOAD_BALANCERS.group, LOAD_BALANCERS.plural
    served = {LOAD_BALANCERS.path(): "v1beta1" in versions, LOAD_BALANCERS_V1ALPHA1.path(): True, POOLS.path(): pools}
    async with asyncio.timeout(SWITCH_SECONDS):
        while await versions_serving(client, group, plural) != versions:  # noqa: ASYNC110 - a server has no event
            await asyncio.sleep(POLL_SECONDS)
        for path, wanted in served.items():
            while await _is_served(client, path) is not wanted:  # noqa: ASYNC110 - a server has no event
                await asyncio.sleep(POLL_SECONDS)


async def _is_served(client: ApiClient, path: str) -> bool | None:
    """Return whether a collection can be listed; None while the API server prepares it."""
    try:
        await client.request("GET", path)
    except NotServed:
        return False
    except Throttled:
        return None
    return True
