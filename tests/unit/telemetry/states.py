"""State that metrics and health checks read, set by hand."""

import asyncio
from dataclasses import dataclass, field

from harvester_ccm.kube.errors import KubeError


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class CacheState:
    """State of an informer."""

    name: str = "harvester/loadbalancers"
    synced: bool = True
    problem: KubeError | None = None
    last_contact: float = field(default_factory=now)

    def __len__(self) -> int:
        return 3


@dataclass
class ElectorState:
    """State of a leader elector."""

    leading: bool
