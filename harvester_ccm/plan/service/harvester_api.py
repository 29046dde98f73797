"""Which version of Harvester's load balancer API is spoken."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

VERSIONS: Final = ("v1beta1", "v1alpha1")
"""The versions that are spoken, the best first. Harvester before 1.2 serves the last one only."""


def choose_version(served: Collection[str], current: str) -> str:
    """Return the version to speak, of those that Harvester serves load balancers in.

    Without any that is spoken the current one stays: what is missing may be installed at any moment.
    """
    return next((version for version in VERSIONS if version in served), current)
