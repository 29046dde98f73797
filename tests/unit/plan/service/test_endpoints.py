"""Endpoints that kube-vip counts, and the EndpointSlice that is touched."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from harvester_ccm.model.core import EndpointSlice
from harvester_ccm.plan.service.announcing.endpoints import (
    Endpoints,
    Reading,
    reading_of,
    slice_to_touch,
)
from tests.support.builders import endpoint_slice, service

LOCAL: Final = service(spec={"externalTrafficPolicy": "Local"})
CLUSTER: Final = service()


def endpoint(node: str | None = "n1", **conditions: bool | None) -> dict[str, Any]:
    return {"addresses": ["10.42.0.7"], "nodeName": node, "conditions": conditions or None}


def slices(**endpoints: list[Mapping[str, Any]]) -> list[EndpointSlice]:
    return [endpoint_slice(name, *found) for name, found in endpoints.items()]


SLICES: Final[dict[str, tuple[list[EndpointSlice], str | None, str | None]]] = {
    # Slices, then the one that is touched for policy Cluster, and for Local.
    "no slice": ([], None, None),
    "no endpoint": (slices(a=[]), None, None),
    "an endpoint without an address": (slices(a=[{"addresses": None, "conditions": {"ready": True}}]), None, None),
    "ready": (slices(a=[endpoint(ready=True)]), "a", "a"),
    "not known whether it is ready": (slices(a=[endpoint()]), "a", "a"),
    "not ready": (slices(a=[endpoint(ready=False)]), "a", None),
    "not serving": (slices(a=[endpoint(ready=False, serving=False)]), "a", None),
    "terminating, serving": (slices(a=[endpoint(ready=False, serving=True)]), "a", "a"),
    "the first one is empty": (slices(a=[], b=[endpoint()]), "b", "b"),
    "the first one is not ready": (slices(a=[endpoint(ready=False)], b=[endpoint()]), "a", "b"),
    "two": (slices(b=[endpoint()], a=[endpoint()]), "a", "a"),
    "the node of the receipt is in the second one": (slices(a=[endpoint("n2")], b=[endpoint("n1")]), "a", "b"),
    "no endpoint is on the node of the receipt": (slices(b=[endpoint("n2")], a=[endpoint("n3")]), "a", "a"),
    "the endpoint on that node is not serving": (
        slices(a=[endpoint("n2")], b=[endpoint("n1", serving=False)]),
        "a",
        "a",
    ),
    "the node of an endpoint is not known": (slices(a=[endpoint(None)]), "a", "a"),
}


@pytest.mark.parametrize(("found", "in_cluster", "local"), SLICES.values(), ids=SLICES.keys())
def test_slice_to_touch(found: list[EndpointSlice], in_cluster: str | None, local: str | None) -> None:
    for concerned, expected in ((CLUSTER, in_cluster), (LOCAL, local)):
        touched = slice_to_touch(found, concerned, "n1")
        assert (None if touched is None else touched.metadata.name) == expected
        reading = Reading.MISSING if expected is None else Reading.EXIST
        assert reading_of(found, concerned) is reading
        incomplete = Reading.UNREADABLE if expected is None else Reading.EXIST
        assert reading_of(found, concerned, are_complete=False) is incomplete


def test_reading_decides_for_a_time() -> None:
    assert not Endpoints().is_current(0.0)
    assert Endpoints(Reading.MISSING, 5.0).is_current(404.0)
    assert not Endpoints(Reading.MISSING, 5.0).is_current(405.0)
