"""The state of an allocation in Harvester, from the Ready condition of a load balancer, read once into facts.

Harvester writes plain sentences, which differ by version and contain what tenants wrote. They are read by splitting at
literal words, never by a pattern that has to try again: a search with several ``.*?`` takes a time that grows with the
fourth power of the text. What tenants wrote can contain the same words, so only the words before it decide anything.

Source: load-balancer-harvester v0.2.1 to v1.9 (Harvester 1.2 to 1.9).
"""

from collections.abc import Callable
from enum import StrEnum, auto
from typing import Final

from msgspec import Struct

from harvester_ccm.model.core import ipv4_text
from harvester_ccm.model.harvester import LoadBalancer


class Stage(StrEnum):
    """How far Harvester is with the address of a load balancer."""

    NOT_PROCESSED = auto()
    """Harvester has not reconciled it."""
    POOL_NOT_WRITTEN = auto()
    """Two writes of the pool conflicted, or the pool cannot be written at all."""
    ALLOCATING = auto()
    """Harvester tries again, or has not recorded the address yet."""
    DUPLICATE = auto()
    """The pool has an address for the load balancer that its status lacks. Harvester since 1.5.1 releases it at once;
    before, it refuses every attempt."""
    NOT_ANNOUNCED = auto()
    """Harvester has an address for a VM load balancer and does not announce it yet."""
    NO_MATCHING_POOL = auto()
    """No pool fits."""
    POOL_NOT_READY = auto()
    """The named pool does not exist or is not ready."""
    POOL_EXHAUSTED = auto()
    """The pool has no free address."""
    OUT_OF_RANGE = auto()
    """The pool no longer has the address that a load balancer of this name had."""
    FAILED = auto()
    """Harvester gives another reason."""


class Requirement(Struct, frozen=True):
    """What Harvester has looked for among the selectors of its IP pools."""

    network: str
    project: str
    namespace: str
    cluster: str


class Entry(Struct, frozen=True):
    """An entry of a pool, whose name is not known."""

    address: str
    owner: str
    """``namespace/name`` of the load balancer."""


class Allocation(Struct, frozen=True):
    """The state of the address of a load balancer that has none, by Harvester's Ready condition."""

    stage: Stage
    message: str = ""
    """Harvester's own words."""
    pool: str = ""
    """The pool in which Harvester last tried to allocate; empty if it is not known, or found none."""
    missing_pool: str = ""
    """The pool that does not exist or is not ready."""
    requirement: Requirement | None = None
    """What no pool fits."""
    entry: Entry | None = None
    """The entry for the load balancer that its status lacks."""

    @property
    def passes_by_itself(self) -> bool:
        """Whether Harvester usually ends this state without anybody's help."""
        return self.is_in_progress or self.stage is Stage.NOT_ANNOUNCED

    @property
    def is_refused(self) -> bool:
        """Whether Harvester certainly has no address for the load balancer."""
        return self.stage in {Stage.NO_MATCHING_POOL, Stage.POOL_NOT_READY, Stage.POOL_EXHAUSTED}

    @property
    def is_in_progress(self) -> bool:
        """Whether Harvester is still working on the address.

        A failure that Harvester retries at once, because two of its writes conflicted, is not a response: the next
        creation would conflict as well.
        """
        return self.stage in {Stage.NOT_PROCESSED, Stage.POOL_NOT_WRITTEN, Stage.ALLOCATING, Stage.DUPLICATE}


_EXHAUSTED: Final = "no IP addresses available"
_DUPLICATE: Final = "duplicate allocation"
_POOL_NOT_WRITTEN: Final = (("fail to reserve ", " into "), ("record ", " into "))
"""Literal words before and after the address that cannot be written into a pool, whose name follows; the first pair
since 1.4, the second up to 1.3."""
_NO_ALLOCATOR: Final = ("fail to get allocator ", "could not get the allocator ")
"""Literal words before the name of a pool that does not exist or is not ready; the second up to 1.3."""
_REQUIREMENT: Final = "requirement &{"
"""Literal words before what no pool fits."""
_BEFORE_TEXT_OF_TENANTS: Final = (_REQUIREMENT, *_NO_ALLOCATOR)
"""Literal words before a text that a tenant can have written: the annotations for network, project and pool."""


def _says(*texts: str) -> Callable[[str], bool]:
    """Return a function that finds one of the texts in a message."""
    return lambda message: any(text in message for text in texts)


_STAGES: Final[tuple[tuple[Stage, Callable[[str], bool]], ...]] = (
    (Stage.NO_MATCHING_POOL, lambda message: "no match" in message.lower()),
    (Stage.POOL_NOT_WRITTEN, lambda message: bool(_pool_not_written(message))),
    (Stage.ALLOCATING, lambda message: message == ""),
    (Stage.DUPLICATE, _says(_DUPLICATE)),
    (Stage.ALLOCATING, _says("has been modified")),
    (Stage.NOT_ANNOUNCED, _says("service is not existing", "waiting for external IP", "external ip failed")),
    (Stage.POOL_EXHAUSTED, _says(_EXHAUSTED)),
    (Stage.POOL_NOT_READY, _says(*_NO_ALLOCATOR)),
    (Stage.OUT_OF_RANGE, _says("not in range set")),
)
"""The stages and the messages that mean them; the first that fits counts."""


def read_allocation(load_balancer: LoadBalancer) -> Allocation:
    """Return why Harvester has not given the load balancer an address, from its Ready condition."""
    condition = load_balancer.ready
    if condition is None:
        return Allocation(Stage.NOT_PROCESSED)
    message = condition.message
    words = _words_of_harvester(message)
    stage = next((stage for stage, is_meant in _STAGES if is_meant(words)), Stage.FAILED)
    return Allocation(
        stage,
        message,
        pool=_pool_of_last_attempt(load_balancer, words),
        missing_pool=_pool_without_allocator(message, words),
        requirement=_requirement(message),
        entry=_entry(words),
    )


def _words_of_harvester(message: str) -> str:
    """Return the beginning of a message up to the first text that a tenant can have written."""
    ends = [message.find(literal) + len(literal) for literal in _BEFORE_TEXT_OF_TENANTS if literal in message]
    return message[: min(ends, default=len(message))]


def is_in_progress(load_balancer: LoadBalancer) -> bool:
    """Return whether Harvester is allocating an address for a load balancer, or releasing it on its deletion."""
    if load_balancer.metadata.deleting:
        return bool(load_balancer.allocated_ip)
    if load_balancer.allocated_ip or load_balancer.address:
        return False
    return read_allocation(load_balancer).is_in_progress


def _pool_of_last_attempt(load_balancer: LoadBalancer, words: str) -> str:
    """Return the pool in which Harvester last tried to allocate; empty if it is not known, or found none.

    Since 1.7, every message of Harvester begins with the pool. Before, only the message about a pool that Harvester
    cannot write names it. A pool that is full, or that has an entry for the load balancer, is known if the load
    balancer names it.
    """
    before, named, rest = words.partition("fail to get ip from pool ")
    if named and not before:
        pool, ending, _ = rest.partition(", error: ")
        if ending and " " not in pool:
            return pool
    if pool := _pool_not_written(words):
        return pool
    return load_balancer.spec.ip_pool if _EXHAUSTED in words or _DUPLICATE in words else ""


def _entry(words: str) -> Entry | None:
    """Return the entry in a message such as ``10.0.0.1 has been allocated to vms/web, duplicate allocation …``."""
    before, literal, rest = words.partition(" has been allocated to ")
    address = ipv4_text(before.rpartition(" ")[2])
    owner, ending, _ = rest.partition(f", {_DUPLICATE}")
    return Entry(address, owner) if literal and ending and address and " " not in owner else None


def _pool_not_written(words: str) -> str:
    """Return the pool in which Harvester cannot write an address; empty if they are about something else."""
    for before_address, after_address in _POOL_NOT_WRITTEN:
        _, _, rest = words.partition(before_address)
        address, literal, behind = rest.partition(after_address)
        if literal and " " not in address:
            return _first_word(behind)
    return ""


def _pool_without_allocator(message: str, words: str) -> str:
    """Return the pool that does not exist or is not ready; empty if the message is about something else."""
    if not words.endswith(_NO_ALLOCATOR):
        return ""
    return _first_word(message.removeprefix(words))


def _first_word(text: str) -> str:
    words = text.split(maxsplit=1)
    return words[0] if words else ""


def _requirement(message: str) -> Requirement | None:
    """Return the requirement in a message such as ``requirement &{Network:n Project:p Namespace:s Cluster:c}``.

    The values come from annotations, which can contain the literal words. Then the parts are wrong, but only shown.
    """
    _, literal, rest = message.partition(f"{_REQUIREMENT}Network:")
    network, _, rest = rest.partition(" Project:")
    project, _, rest = rest.partition(" Namespace:")
    namespace, _, rest = rest.partition(" Cluster:")
    cluster, ending, _ = rest.partition("}")
    return Requirement(network, project, namespace, cluster) if literal and ending else None
