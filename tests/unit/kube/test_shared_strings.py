"""Objects share the strings that they have in common, and no string stays in memory for ever."""

import msgspec

from harvester_ccm.kube import objects
from harvester_ccm.model.core import SERVICES, Service


def decoded(*keys: str, namespace: str = "shop") -> Service:
    """Return a Service with these annotations."""
    metadata = {"name": "web", "namespace": namespace, "annotations": dict.fromkeys(keys, "x"), "labels": {"app": "a"}}
    return SERVICES.decode(msgspec.json.encode({"metadata": metadata}))


def strings(service: Service) -> list[str]:
    """Return the strings of a Service that others can have as well."""
    metadata = service.metadata
    return [metadata.namespace, *(metadata.labels or {}), *(metadata.annotations or {})]


def test_objects_share_keys_and_namespaces() -> None:
    objects._strings.clear()
    one, other = (strings(decoded("example.com/a-key-of-this-test", "b")) for _ in range(2))
    assert one == other
    assert [id(text) for text in one] == [id(text) for text in other]


def test_shared_strings_are_bounded_whatever_tenants_choose() -> None:
    # Other tests of the process have left strings, and the moment at which all are forgotten depends on them.
    objects._strings.clear()
    for number in range(3 * objects.SHARED_STRINGS):
        decoded(f"example.com/{number}", "x" * 100_000, namespace=f"namespace-{number}")
        assert len(objects._strings) <= objects.SHARED_STRINGS
    assert max(map(len, objects._strings)) <= objects.MAX_KEY
    # The common ones are shared again.
    one, other = (strings(decoded("example.com/a-key-of-this-test")) for _ in range(2))
    assert [id(text) for text in one] == [id(text) for text in other]
