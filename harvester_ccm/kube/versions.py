"""Which versions of an API group a server has."""

from __future__ import annotations

import msgspec

from harvester_ccm.errors import NotServed
from harvester_ccm.kube.client import ApiClient


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]


_decode = msgspec.json.Decoder(_Group).decode


async def served_versions(client: ApiClient, group: str) -> tuple[str, ...]:
    """Return the versions of an API group, the preferred one first; empty when the server does not have the group.

    Raises the errors of ``harvester_ccm.errors`` when the server cannot be asked.
    """
    try:
        return tuple(one.version for one in (await client.read(f"/apis/{group}", _decode)).versions)
    except NotServed:
        return ()
