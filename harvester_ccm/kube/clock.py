"""Clocks: the monotonic time that every duration is measured with, and the wall time in the format of the API."""

import asyncio
from datetime import UTC, datetime


def loop_time() -> float:
    """Return the monotonic time of the running event loop, in seconds. Tests advance it."""
    return asyncio.get_running_loop().time()


def wall_time() -> str:
    """Return the wall time in the format of the Kubernetes API."""
    return time_text(datetime.now(UTC))


def time_text(time: datetime) -> str:
    """Return a time in the format of the Kubernetes API, such as ``2026-01-31T12:00:00Z``."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
