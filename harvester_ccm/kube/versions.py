"""Which versions of an API group a server has."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from harvester_ccm.errors import NotServed
from harvester_ccm.kube.client import ApiClient


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


class _Resource(msgspec.Struct):
    name: str


class _Resources(msgspec.Struct):
    resources: list[_Resource]


_decode = msgspec.json.Decoder(_Group).decode
_decode_resources = msgspec.json.Decoder(_Resources).decode


async def served_versions(client: ApiClient, group: str) -> tuple[str, ...]:
    """Return the versions of an API group, the preferred one first; empty when the server does not have the group.

    Raises the errors of ``harvester_ccm.errors`` when the server cannot be asked.
    """
    try:
        return tuple(one.version for one in (await client.read(f"/apis/{group}", _decode)).versions)
    except NotServed:
        return ()


async def versions_serving(client: ApiClient, group: str, plural: str) -> tuple[str, ...]:
    """Return the versions of an API group that have a resource, the preferred one first.

    A group may have a version for the sake of another resource. Raises the errors of ``harvester_ccm.errors`` when the
    server cannot be asked.
    """
    found = []
    for version in await served_versions(client, group):
        # One may go between the two questions.
        with suppress(NotServed):
            answer = await client.read(f"/apis/{group}/{version}", _decode_resources)
            if any(one.name == plural for one in answer.resources):
                found.append(version)
    return tuple(found)
