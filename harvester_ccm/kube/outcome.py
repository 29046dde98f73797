"""Outcome of a reconcile; one that fails raises an error, and is retried with backoff."""

from msgspec import Struct


class Outcome(Struct, frozen=True):
    """What an object waits for. Its next change triggers a reconcile, and so does the end of ``at_most`` seconds."""

    reason: str = ""
    """A short text, such as the reason of a condition or an Event; empty if the object is in its desired state."""
    at_most: float | None = None
