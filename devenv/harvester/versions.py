"""What differs between the versions of Harvester: one frozen set of rules for each group of versions that behave alike.

``version("1.3")`` returns the rules of Harvester 1.3. A test passes a version by its number to the emulator:
``HarvesterEmulator(client, version="1.3")``. Each difference is in a recording of the real programs, which are in the
folder of their tag.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class ClientAnnotations(Enum):
    """What becomes of network and project that a client writes on a load balancer for VMs."""

    OVERWRITTEN = "the network with nothing, the project with that of the namespace"
    OVERWRITTEN_WITHOUT_TYPE = "the same, but only if the specification has no type"
    KEPT = "they stay"


class RemovalCheck(Enum):
    """What is asked about the VMs of a guest cluster before it gets a load balancer."""

    NONE = "nothing"
    NEEDS_MACHINE = "there is a VM of the cluster, and none is marked as removed"
    NOT_REMOVED = "none is marked as removed"


class Duplicate(Enum):
    """What becomes of an allocation that a load balancer does not know to be its own."""

    STAYS = "it stays"
    NAMED_POOL = "it is released, if the load balancer names the pool"
    RELEASED = "it is released"


class Serving(Enum):
    """How a load balancer for VMs is served."""

    BLOCKING = (
        "an attempt waits up to 5 s for the host's address; a new backend is ready, and no state tells the health"
    )
    WATCHED = "an attempt ends while it waits; a new backend is not ready before its first probe"


@dataclass(frozen=True)
class Words:
    """The messages that differ."""

    failed: str = "{problem}"
    """Around each message of an allocation; ``{key}`` is the load balancer."""
    no_pool: str = "no matched IPPool with requirement {requirement}"
    no_allocator: str = "fail to get allocator {pool}"
    from_pool: str = "fail to get ip from pool {pool}, error: {problem}"
    not_reserved: str = "fail to reserve {address} into {pool}"
    no_addresses: str = "running backend servers have no IP"
    removed: str = "the vm {machine} shows guest cluster {cluster} is being removed"
    cannot: str = "can't"
    """In rejections of pools."""
    range: str = "{error}, a valid example is 192.168.1.0/24"
    """About a range whose subnet is none."""
    scope: str = (
        "scope selector is same as the pool {pool} with priority 0 Project {project} Namespace {namespace} "
        "GuestCluster {cluster}, set a different priority or scope"
    )


@dataclass(frozen=True)
class Version:
    """The rules of a group of versions; the defaults are those of the newest."""

    name: str
    tag: str
    """The tag of load-balancer-harvester whose programs are recorded; empty if no program of the group is."""
    respects_network: bool = True
    """Whether the client selects the network of a cluster load balancer; else it is that of a VM of the node driver."""
    vm_annotations: ClientAnnotations = ClientAnnotations.KEPT
    needs_instance: bool = False
    """Whether each write of a load balancer needs a running VM that its selector matches."""
    removal: RemovalCheck = RemovalCheck.NOT_REMOVED
    cleans_up: bool = True
    """Whether the load balancers of a guest cluster that Rancher deletes are deleted."""
    listeners_by_protocol: bool = True
    """Whether TCP and UDP can have the same port."""
    names_backend_port: bool = True
    """Whether the rejection of a backend port names that port; else it names the port of the listener."""
    checks_specification: bool = True
    """Whether thresholds get defaults, and what a load balancer of its type needs and cannot change is checked."""
    loose_scopes: bool = True
    """Whether a pool with empty fields in its scope matches a cluster load balancer in the end."""
    selects_again: bool = False
    """Whether the pool is selected again in each attempt, and the address moves with it."""
    reserves_again: bool = True
    """Whether an owner gets an address that is already allocated to it."""
    releases_all: bool = False
    """Whether a release frees all addresses of the owner, instead of one of them."""
    retries_each_second: bool = True
    """Whether a load balancer without a pool, or without the host's address, is tried again each second."""
    duplicate: Duplicate = Duplicate.RELEASED
    releases_by_hand: bool = True
    """Whether an administrator can release an allocation with an annotation of the pool."""
    serving: Serving = Serving.WATCHED
    words: Words = Words()


V1_9: Final = Version("1.9", "v1.9")
V1_8: Final = replace(
    V1_9,
    name="1.8",
    tag="v1.8.2",
    respects_network=False,
    vm_annotations=ClientAnnotations.OVERWRITTEN_WITHOUT_TYPE,
)
V1_8_0: Final = replace(
    V1_8,
    name="1.8.0",
    tag="v1.8.0",
    removal=RemovalCheck.NEEDS_MACHINE,
    words=Words(removed="the vm {machine} shows guest cluster is on remove"),
)
V1_7: Final = replace(
    V1_8,
    name="1.7",
    tag="",
    removal=RemovalCheck.NONE,
    cleans_up=False,
    words=Words(no_addresses="no running backend servers"),
)
V1_6: Final = replace(
    V1_7,
    name="1.5 to 1.6",
    vm_annotations=ClientAnnotations.OVERWRITTEN,
    loose_scopes=False,
    names_backend_port=False,
    words=replace(V1_7.words, from_pool="{problem}"),
)
V1_5_0: Final = replace(
    V1_6,
    name="1.5.0",
    listeners_by_protocol=False,
    duplicate=Duplicate.NAMED_POOL,
)
V1_4: Final = replace(V1_5_0, name="1.4", tag="v0.4.4", duplicate=Duplicate.STAYS, releases_by_hand=False)
V1_3: Final = replace(
    V1_4,
    name="1.2 to 1.3",
    tag="v0.3.0",
    needs_instance=True,
    checks_specification=False,
    selects_again=True,
    reserves_again=False,
    releases_all=True,
    retries_each_second=False,
    serving=Serving.BLOCKING,
    words=Words(
        failed="allocate ip for lb {key} failed, error: {problem}",
        no_pool="fail to select the pool for lb {key}, error: no matching IP pool with requirement {requirement}",
        no_allocator="could not get the allocator {pool}",
        from_pool="{problem}",
        not_reserved="record {address} into {pool} failed",
        cannot="could not",
        range="invalid range {entry}",
        scope="scope overlaps with {pool}",
    ),
)
VERSIONS: Final[Mapping[str, Version]] = {
    "1.2": V1_3,
    "1.3": V1_3,
    "1.4": V1_4,
    "1.5.0": V1_5_0,
    "1.5": V1_6,
    "1.6": V1_6,
    "1.7": V1_7,
    "1.8.0": V1_8_0,
    "1.8": V1_8,
    "1.9": V1_9,
}
"""By the number of Harvester; a minor version is its newest patch."""
NEWEST: Final = "1.9"
RECORDED: Final[tuple[Version, ...]] = (V1_3, V1_4, V1_8_0, V1_8, V1_9)
"""The versions whose programs are recorded."""


def version(number: str = NEWEST) -> Version:
    """Return the rules of a version of Harvester. Raises KeyError if the number is unknown."""
    return VERSIONS[number]


def version_with_tag(text: str) -> Version:
    """Return the rules of programs that say from which version of load-balancer-harvester they were built.

    Programs of a commit between two tags count as the release that follows. Raises KeyError.
    """
    for known in RECORDED:
        if text == known.tag or text.startswith(f"{known.tag}."):
            return known
    raise KeyError(text)
