"""When objects were made, as the API server says."""

from __future__ import annotations

from datetime import datetime

from harvester_ccm.model.meta import Object


def created_at(item: Object) -> float | None:
    """Return when an object was created, in seconds since the epoch; None where it does not say."""
    created = item.metadata.creation_timestamp
    if created is None:
        return None
    try:
        return datetime.fromisoformat(created).timestamp()
    except ValueError:
        return None
