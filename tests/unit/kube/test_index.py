"""Keys of objects by what they have in common, for one object and for many."""

from __future__ import annotations

from harvester_ccm.kube.index import Index
from harvester_ccm.model.core import Service
from tests.worlds.builders import service


def named(*addresses: str) -> Service:
    """Return a Service with these addresses as annotations."""
    return service(annotations=dict.fromkeys(addresses, ""))


def addresses_of(one: Service) -> list[str]:
    return list(one.metadata.annotations or {})


def test_objects_are_found_by_each_of_their_values_in_the_order_in_which_they_came() -> None:
    index = Index(addresses_of)
    for key in ("a", "b", "c"):
        index.change(key, None, named("shared", key))
    assert index.keys("shared") == ("a", "b", "c")
    assert index.keys("b") == ("b",)
    assert index.keys("unknown") == ()


def test_what_changes_or_goes_is_found_no_more_by_what_it_had() -> None:
    index = Index(addresses_of)
    index.change("a", None, named("one"))
    index.change("b", None, named("one"))
    index.change("a", named("one"), named("two"))
    assert (index.keys("one"), index.keys("two")) == (("b",), ("a",))
    index.change("b", named("one"), None)
    index.change("a", named("two"), None)
    assert (index.keys("one"), index.keys("two")) == ((), ())


def test_one_key_under_one_value_is_there_once() -> None:
    index = Index(addresses_of)
    index.change("a", None, named("one"))
    index.change("a", None, named("one"))
    assert index.keys("one") == ("a",)
    # That another one goes, which was never there, changes nothing.
    index.change("b", named("one"), None)
    assert index.keys("one") == ("a",)
