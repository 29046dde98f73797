"""Outcome of a reconcile. A reconcile has two outcomes; it raises an error to be retried with backoff."""

from msgspec import Struct


class Done(Struct, frozen=True):
    """The object is in its desired state; its next change triggers a reconcile."""


class Wait(Struct, frozen=True):
    """An object must change first, which triggers a reconcile; so does the end of ``at_most`` seconds."""

    reason: str
    """A short text, such as the reason of a condition or an Event."""
    at_most: float | None = None


Outcome = Done | Wait
