"""The patch of a Service: annotations, labels, finalizer, status and condition in one request.

They go through the ``status`` subresource, which the API server permits and every installed RBAC rule grants.
"""

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from harvester_ccm.model.core import Ingress, Service, ServiceCondition
from harvester_ccm.names import LOAD_BALANCER_READY, SERVICE_FINALIZER
from harvester_ccm.plan.service.desired import Desired, Document, Finalizer


def service_patch(service: Service, desired: Desired) -> Document:
    """Return the strategic merge patch that leads to a desired state, but for the condition; empty if nothing differs.

    For maps it means the same as a JSON merge patch. Lists that belong to several controllers, conditions and
    finalizers, are merged: the patch names only the entry of this controller.
    """
    patch: Document = {}
    metadata = _metadata_patch(service, desired)
    if metadata:
        patch["metadata"] = metadata
    status = _status_patch(service, desired.ingress)
    if status:
        patch["status"] = status
    if desired.requires_version and ("annotations" in metadata or "loadBalancer" in status):
        patch["metadata"] = {**metadata, "resourceVersion": service.metadata.resource_version}
    return patch


def _metadata_patch(service: Service, desired: Desired) -> Document:
    """Return the patch of the metadata.

    A change of finalizers holds only for the version that was read: it replaces the whole list.
    """
    meta = service.metadata
    metadata = cast("Document", {})
    annotations = _differing(meta.annotations, desired.annotations)
    if annotations:
        metadata["annotations"] = annotations
    labels = _differing(meta.labels, desired.labels)
    if labels:
        metadata["labels"] = labels
    finalizers = _finalizers(service, desired.finalizer)
    if finalizers is not None:
        metadata["finalizers"] = finalizers
        metadata["resourceVersion"] = meta.resource_version
    return metadata


def _finalizers(service: Service, wanted: Finalizer) -> list[str] | None:
    """Return the whole changed list; None if nothing changes."""
    present = service.metadata.finalizers or ()
    others = [name for name in present if name != SERVICE_FINALIZER]
    if wanted is Finalizer.ADD and SERVICE_FINALIZER not in present:
        return [*others, SERVICE_FINALIZER]
    if wanted is Finalizer.REMOVE and SERVICE_FINALIZER in present:
        return others
    return None


def _status_patch(service: Service, ingress: tuple[Ingress, ...] | None) -> Document:
    if ingress is None:
        return {}
    wanted = _ingress_documents(ingress)
    if wanted == _ingress_documents(service.status.load_balancer.ingress):
        return {}
    return {"loadBalancer": {"ingress": wanted or None}}


def with_condition(patch: Document, service: Service, wanted: ServiceCondition | None) -> Document:
    """Return a patch that also leads to this condition; None: the Service has no condition of this controller."""
    condition = _condition_patch(service.ready_condition, wanted)
    if not condition:
        return patch
    status = cast("Document", patch.get("status", {}))
    return {**patch, "status": {**status, "conditions": [condition]}}


def _condition_patch(current: ServiceCondition | None, wanted: ServiceCondition | None) -> Document:
    """Return the entry of the list of conditions that makes the change; empty if nothing differs."""
    if wanted is None:
        return {} if current is None else {"$patch": "delete", "type": LOAD_BALANCER_READY}
    if current is not None and current.status == wanted.status:
        wanted = replace(wanted, last_transition_time=current.last_transition_time)
    if current == wanted:
        return {}
    document: Document = msgspec.to_builtins(wanted)
    return {key: value for key, value in document.items() if value != 0}


def _differing(current: Mapping[str, str] | None, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    present = current or {}
    return {key: value for key, value in wanted.items() if present.get(key) != value}


def _ingress_documents(ingress: Iterable[Ingress]) -> list[Document]:
    """Return the entries of a status; an API server older than 1.29 does not store ``ipMode``."""
    documents = []
    for entry in ingress:
        document: Document = {"ip": entry.ip, "ipMode": entry.ip_mode or "VIP"}
        if entry.hostname:
            document["hostname"] = entry.hostname
        if entry.ports:
            document["ports"] = [{"port": port.port, "protocol": port.protocol} for port in entry.ports]
        documents.append(document)
    return documents


def sent_patch(service: Service, patch: Mapping[str, object]) -> Document:
    """Return the patch as it is sent: only for the Service with this UID, and without the finalizers of others.

    By now, the Service of this name may be a new one with another UID, or belong to another cluster.
    """
    metadata = {"uid": service.metadata.uid, **cast("Document", patch.get("metadata") or {})}
    finalizers = cast("list[str]", metadata.get("finalizers", [SERVICE_FINALIZER]))
    if SERVICE_FINALIZER not in finalizers:
        # A strategic merge patch only adds the entries of the list.
        metadata["$deleteFromPrimitiveList/finalizers"] = [SERVICE_FINALIZER]
    return {**patch, "metadata": metadata}
