"""The allocators of Harvester's controller: for each pool the ranges that it uses, in the memory of its process.

The controller builds an allocator when it first sees a pool and when the ranges of the pool change. Only then it counts
the addresses and drops history outside of the ranges; what other clients write to the status is used as it is.
"""

from dataclasses import dataclass

from devenv.harvester.pools import AddressRange, read_ranges
from devenv.watch import Document, key_of


@dataclass(frozen=True)
class _Allocator:
    entries: list[dict[str, str]]
    """``spec.ranges`` for which it was built."""
    ranges: tuple[AddressRange, ...]


class Allocators:
    """The allocators of one process, by the name of the pool."""

    def __init__(self) -> None:
        self._of: dict[str, _Allocator] = {}

    def fits(self, pool: Document) -> bool:
        """Whether the pool has an allocator for its present ranges."""
        allocator = self._of.get(key_of(pool))
        return allocator is not None and allocator.entries == pool["spec"].get("ranges")

    def build(self, pool: Document) -> None:
        """Build the allocator of a pool. Raises RangeProblem, and keeps the old allocator then."""
        entries = pool["spec"].get("ranges") or []
        self._of[key_of(pool)] = _Allocator(entries, read_ranges(pool))

    def ranges_of(self, name: str) -> tuple[AddressRange, ...] | None:
        """Return the ranges of a pool; None if it has no allocator."""
        allocator = self._of.get(name)
        return None if allocator is None else allocator.ranges

    def drop(self, name: str) -> None:
        """Remove the allocator of a pool that is deleted."""
        self._of.pop(name, None)

    def clear(self) -> None:
        """Remove all allocators: the process ends."""
        self._of.clear()
