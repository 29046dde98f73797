"""The holder of a Lease, for readers outside of the election: what program it is, and whether it renews the Lease."""

import asyncio

from harvester_ccm.kube.builtin import LEASES, Lease
from harvester_ccm.kube.client import ApiClient


def holder_mark(program: str, identity: str) -> str:
    """Return the value of the annotation with which a candidate says what program it is.

    It names the holder as well: client-go keeps the annotations of a Lease that it takes.
    """
    return f"{program} {identity}"


def program_of_holder(lease: Lease, annotation: str) -> str:
    """Return the program that holds a Lease; empty if nobody does, or if its holder has not marked it."""
    program, _, identity = (lease.metadata.annotation(annotation) or "").partition(" ")
    return program if identity and identity == lease.spec.holder_identity else ""


async def renewing_holder(client: ApiClient, namespace: str, name: str, *, seconds: float) -> str:
    """Return the holder of a Lease that is renewed within ``seconds``; empty if it is not.

    Two readings are compared, because the clocks of the holder and of this process can differ. Raises KubeError.
    """
    before = (await client.get(LEASES, name, namespace=namespace)).spec
    if not before.holder_identity:
        return ""
    await asyncio.sleep(seconds)
    after = (await client.get(LEASES, name, namespace=namespace)).spec
    if after.renew_time == before.renew_time:
        return ""
    return after.holder_identity or ""
