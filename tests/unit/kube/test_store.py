"""The indexes of a store."""

import pytest

from harvester_ccm.kube.store import Store
from harvester_ccm.model.core import Service
from tests.support.builders import service

BY_LABEL = "label"


def store_of(count: int) -> Store[Service]:
    """Return a store of objects that all have one value in the index."""
    items = [service(f"s{number:02}", labels={"app": "web"}) for number in range(count)]
    return Store(items, {BY_LABEL: lambda one: (one.metadata.labels or {}).values()})


def names_in(store: Store[Service], value: str) -> list[str]:
    return [one.metadata.name for one in store.by_index(BY_LABEL, value)]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_index_has_the_objects_of_one_value_in_the_order_in_which_they_got_it(count: int) -> None:
    store = store_of(count)
    names = [f"s{number:02}" for number in range(count)]
    assert names_in(store, "web") == names

    store._set("shop/s00", service("s00", labels={"app": "api"}))
    assert (names_in(store, "web"), names_in(store, "api")) == (names[1:], ["s00"])

    store._set("shop/s00", service("s00", labels={"app": "web"}))
    assert names_in(store, "web") == [*names[1:], "s00"]

    for name in names:
        store._set(f"shop/{name}", None)
    assert names_in(store, "web") == []
    assert store._indexes[BY_LABEL] == {}
