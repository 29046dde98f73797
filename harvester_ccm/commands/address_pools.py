"""The IP pools in which this cluster may request addresses, as the commands read them."""

import asyncio
from collections.abc import Collection

from harvester_ccm.commands.clusters import ClusterStore, request_or_error, rights_in
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.errors import KubeError, NotFound
from harvester_ccm.kube.reviews import RULES_REVIEWS, ask_review
from harvester_ccm.model.event import abbreviate
from harvester_ccm.model.harvester import IP_POOLS
from harvester_ccm.plan.service.allocation.address_pools import GRANT, ObservedPool


async def read_pools(store: ClusterStore, harvester: ApiClient, names: Collection[str]) -> None:
    """Read IP pools into the store. One that cannot be read is a note of it."""
    wanted = sorted(set(names))
    found = await asyncio.gather(*(request_or_error(harvester.get(IP_POOLS, name)) for name in wanted))
    for name, answer in zip(wanted, found, strict=True):
        if isinstance(answer, NotFound):
            store.pools[name] = ObservedPool(name, None)
        elif isinstance(answer, KubeError):
            store.lists = {**store.lists, f"IP pool {name}": answer}
        else:
            store.pools[name] = ObservedPool(name, answer)


async def requests_text(harvester: ApiClient) -> str:
    """Return in which pools addresses can be requested."""
    answer = await request_or_error(ask_review(harvester, RULES_REVIEWS, {"namespace": harvester.namespace}))
    rights = rights_in(answer)
    if not rights.are_known:
        return f"not known: {answer}"
    if rights.are_all:
        return "possible in all IP pools"
    if not rights.names:
        return f"not possible, so Harvester chooses each address of a pool ({GRANT} permits requests)"
    return f"possible in IP pools {abbreviate(sorted(rights.names))}"
