"""Mutations and rejections of IPPools by Harvester's webhook. Pure."""

import copy
import json
import re
from collections.abc import Sequence
from typing import Final

from devenv.harvester.admission import Refusal
from devenv.harvester.pools import (
    ANY,
    GLOBAL_LABEL,
    AddressRange,
    Pool,
    RangeProblem,
    Scope,
    read_range,
    read_scopes,
)
from devenv.harvester.versions import V1_9, Words
from devenv.watch import Document, key_of, labels_of

VLAN_LABEL: Final = "loadbalancer.harvesterhci.io/vid"
VLAN_LABEL_OF_NETWORK: Final = "network.harvesterhci.io/vlan-id"
_NETWORK: Final = re.compile(r"[^/]+/[^/]+")


def mutate_pool(pool: Document, networks: Sequence[Document], words: Words, *, create: bool) -> Document:
    """Return the pool with the label of the webhook. ``networks`` are all NADs.

    Raises Refusal if the network of the pool does not exist, for every write: such a pool cannot allocate or release
    addresses.
    """
    name = (pool["spec"].get("selector") or {}).get("network") or ""
    if name and not _NETWORK.fullmatch(name):
        raise _refusal(pool, RangeProblem(f"invalid network {name}"), words, create=create)
    if name and all(key_of(network) != name for network in networks):
        missing = f'network-attachment-definitions.k8s.cni.cncf.io "{name.partition("/")[2]}" not found'
        raise _refusal(pool, RangeProblem(missing), words, create=create)
    found = next((one for one in networks if name and key_of(one) == name), None)
    try:
        return labelled(pool, vlan=_vlan_of(found) if found else 0)
    except ValueError as error:
        raise _refusal(pool, RangeProblem(str(error)), words, create=create) from error


def _vlan_of(network: Document) -> int:
    """Return the VLAN of a network: that of its label, or that of its configuration. Raises ValueError."""
    label = labels_of(network).get(VLAN_LABEL_OF_NETWORK)
    if label is None:
        return int(json.loads(network["spec"].get("config") or "{}").get("vlan") or 0)
    if not label.isdecimal():
        raise ValueError(f"invalid vlan {label}")
    return int(label)


def labelled(pool: Document, *, vlan: int = 0) -> Document:
    """Return the pool with its labels."""
    changed = copy.deepcopy(pool)
    scopes = read_scopes(changed["spec"].get("selector") or {})
    labels = changed["metadata"].setdefault("labels", {})
    labels[VLAN_LABEL] = str(vlan)
    labels[GLOBAL_LABEL] = "true" if len(scopes) == 1 and scopes[0].everybody else "false"
    return changed


def _refusal(pool: Document, problem: RangeProblem, words: Words, *, create: bool) -> Refusal:
    return Refusal(
        f"{words.cannot} {'create' if create else 'update'} IP pool {pool['metadata']['name']} because {problem}"
    )


def validate_pool(pool: Document, others: Sequence[Document], words: Words = V1_9.words, *, create: bool) -> None:
    """Raise Refusal if a pool is invalid or conflicts with the others."""
    try:
        _check_ranges(pool, others, words)
        _check_selector(pool, others, words)
    except RangeProblem as problem:
        raise _refusal(pool, problem, words, create=create) from problem


def validate_pool_deletion(pool: Document, words: Words = V1_9.words) -> None:
    """Raise Refusal if the pool has allocated addresses."""
    if (pool.get("status") or {}).get("allocated"):
        raise Refusal(f"{words.cannot} delete pool before releasing all the allocated IP")


def _check_ranges(pool: Document, others: Sequence[Document], words: Words) -> None:
    entries = pool["spec"].get("ranges") or []
    if not entries:
        raise RangeProblem(f"range {words.cannot} be empty")
    ranges = [read_range(entry, words) for entry in entries]
    for index, one in enumerate(ranges):
        for two in ranges[index + 1 :]:
            if _overlap(one, two):
                raise RangeProblem(f"there are overlaps between range {_text(one)} and {_text(two)}")
    for other in others:
        if any(_overlap(one, two) for one in ranges for two in Pool.of(other).ranges):
            listed = " ".join(map(_text, ranges))
            raise RangeProblem(f"the ranges [{listed}] overlap with other pools")
    mine = Pool.of(pool)
    for address in mine.allocated or {}:
        if mine.range_of(address) is None:
            raise RangeProblem(f"allocated IP {address} is excluded")


def _overlap(one: AddressRange, two: AddressRange) -> bool:
    return one.first in two or two.first in one


def _text(one: AddressRange) -> str:
    """Return a range in Go's format of the structure."""
    mask = int(one.network.netmask).to_bytes(one.first.max_prefixlen // 8, "big").hex()
    subnet = f"{{IP:{one.network.network_address} Mask:{mask}}}"
    gateway = "<nil>" if one.gateway is None else one.gateway
    return f"{{RangeStart:{one.first} RangeEnd:{one.last} Subnet:{subnet} Gateway:{gateway}}}"


def _selector_text(pool: Pool) -> str:
    """Return the selector of a pool in Go's format of the structure."""
    scopes = " ".join(
        f"{{Project:{scope.project} Namespace:{scope.namespace} GuestCluster:{scope.guest_cluster}}}"
        for scope in pool.scopes
    )
    return f"{{Priority:{pool.priority} Network:{pool.network} Scope:[{scopes}]}}"


def _check_selector(pool: Document, others: Sequence[Document], words: Words) -> None:
    mine = Pool.of(labelled(pool))
    found = [Pool.of(document) for document in others]
    if mine.is_global:
        for other in found:
            if other.is_global:
                raise RangeProblem(f"there is already a global IP pool: {other.name}")
        return
    for index, one in enumerate(mine.scopes):
        if any(_cover(one, two) for two in mine.scopes[index + 1 :]):
            raise RangeProblem(f"selector {_selector_text(mine)} is invalid: scope overlaps")
    for other in found:
        if not other.is_global:
            _check_beside(mine, other, words)


def _check_beside(mine: Pool, other: Pool, words: Words) -> None:
    if mine.priority and mine.priority == other.priority:
        raise RangeProblem(f"the priority {words.cannot} be the same as the pool {other.name}")
    shared = _shared_scope(mine, other)
    if shared is not None and mine.priority == other.priority == 0:
        text = words.scope.format(
            pool=other.name, project=shared.project, namespace=shared.namespace, cluster=shared.guest_cluster
        )
        raise RangeProblem(text)


def _shared_scope(mine: Pool, other: Pool) -> Scope | None:
    if mine.network != other.network:
        return None
    return next((scope for scope in mine.scopes if any(_cover(scope, one) for one in other.scopes)), None)


def _cover(one: Scope, two: Scope) -> bool:
    pairs = (
        (one.project, two.project),
        (one.namespace, two.namespace),
        (one.guest_cluster, two.guest_cluster),
    )
    return all(a == b or ANY in (a, b) for a, b in pairs)
