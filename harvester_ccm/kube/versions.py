"""Which versions of an API group a server has."""

from __future__ import annotations

import msgspec

from harvester_ccm.errors import NotServed, UnexpectedAnswer
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
        body = await client.request("GET", f"/apis/{group}")
    except NotServed:
        return ()
    try:
        return tuple(entry.version for entry in _decode(body).versions)
    except msgspec.MsgspecError as error:
        raise UnexpectedAnswer(f"the answer is not what a Kubernetes API server sends (GET /apis/{group})") from error


async def versions_serving(client: ApiClient, group: str, plural: str) -> tuple[str, ...]:
    """Return the versions of an API group that have a resource, the preferred one first.

    A group may have a version for the sake of another resource. Raises the errors of ``harvester_ccm.errors`` when the
    server cannot be asked.
    """
    found = []
    for version in await served_versions(client, group):
        path = f"/apis/{group}/{version}"
        try:
            body = await client.request("GET", path)
            if any(entry.name == plural for entry in _decode_resources(body).resources):
                found.append(version)
        except NotServed:
            # It went between the two questions.
            continue
        except msgspec.MsgspecError as error:
            raise UnexpectedAnswer(f"the answer is not what a Kubernetes API server sends (GET {path})") from error
    return tuple(found)
