"""The process that renews a Lease at this moment, for those that do not take part in the election."""

import asyncio

from harvester_ccm.kube.builtin import LEASES
from harvester_ccm.kube.client import ApiClient


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
