"""Objects that a controller watches and writes: a mirror with rate-limited writes."""

from typing import Final

from devenv.harvester.queue import TokenBucket
from devenv.watch import Document, Mirror, documents
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.objects import Resource

LOAD_BALANCERS: Final = documents("loadbalancer.harvesterhci.io", "v1beta1", "loadbalancers", kind="LoadBalancer")
POOLS: Final = documents("loadbalancer.harvesterhci.io", "v1beta1", "ippools", kind="IPPool", namespaced=False)
MACHINES: Final = documents("kubevirt.io", "v1", "virtualmachines", kind="VirtualMachine")
INSTANCES: Final = documents("kubevirt.io", "v1", "virtualmachineinstances", kind="VirtualMachineInstance")
NAMESPACES: Final = documents("", "v1", "namespaces", kind="Namespace", namespaced=False)
SERVICES: Final = documents("", "v1", "services", kind="Service")
SLICES: Final = documents("discovery.k8s.io", "v1", "endpointslices", kind="EndpointSlice")

READY: Final = "Ready"


class Records(Mirror):
    """A collection of all namespaces. Writes wait for the token bucket."""

    def __init__(
        self, client: ApiClient, resource: Resource[Document], *, bucket: TokenBucket, lags: bool = False
    ) -> None:
        """``lags``: own writes are visible only after their watch event, as in a controller with informers."""
        super().__init__(client, resource)
        self._bucket = bucket
        self._lags = lags

    async def put(self, document: Document) -> Document:
        """Replace a whole object. Raises Conflict if it is not the stored version, NotFound if it is deleted."""
        metadata = document["metadata"]
        await self._bucket.take()
        answer = await self.client.replace(
            self.resource, metadata["name"], document, namespace=metadata.get("namespace")
        )
        if not self._lags and not metadata.get("deletionTimestamp"):
            # The response to the write that removes the last finalizer contains an object that is already deleted.
            self.note(answer)
        return answer

    async def create(self, document: Document) -> Document:
        """Create an object. Raises AlreadyExists, Invalid, …."""
        await self._bucket.take()
        answer = await self.client.create(self.resource, document, namespace=document["metadata"].get("namespace"))
        if not self._lags:
            self.note(answer)
        return answer

    async def delete(self, document: Document) -> None:
        """Delete the object with this UID. Raises NotFound or Conflict if it does not exist."""
        metadata = document["metadata"]
        await self._bucket.take()
        await self.client.delete(
            self.resource, metadata["name"], namespace=metadata.get("namespace"), uid=metadata["uid"]
        )


def with_finalizer(document: Document, name: str) -> Document:
    """Return the document with the finalizer; the same document if it has it."""
    metadata = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if name in finalizers:
        return document
    return {**document, "metadata": {**metadata, "finalizers": [*finalizers, name]}}


def without_finalizer(document: Document, name: str) -> Document:
    """Return the document without the finalizer; the same document if it does not have it."""
    metadata = document["metadata"]
    finalizers = metadata.get("finalizers") or []
    if name not in finalizers:
        return document
    return {**document, "metadata": {**metadata, "finalizers": [f for f in finalizers if f != name]}}


def is_deleting(document: Document) -> bool:
    """Whether the object has a deletion timestamp."""
    return bool(document["metadata"].get("deletionTimestamp"))


def is_ready(document: Document) -> bool:
    """Whether the object's Ready condition is True."""
    conditions = (document.get("status") or {}).get("conditions") or []
    return any(c.get("type") == READY and c.get("status") == "True" for c in conditions)


def with_condition(status: Document, *, ready: bool, message: str, now: str) -> Document:
    """Return the status with its Ready condition set; its time moves only when status or message changes."""
    wanted = {"type": READY, "status": "True" if ready else "False"} | ({"message": message} if message else {})
    conditions = [c for c in status.get("conditions") or [] if c.get("type") != READY]
    for condition in status.get("conditions") or []:
        if {k: v for k, v in condition.items() if k != "lastUpdateTime"} == wanted:
            return status
    return {**status, "conditions": [*conditions, {**wanted, "lastUpdateTime": now}]}
