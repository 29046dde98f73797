"""A rule of a version that is wrong in the emulator is found by a recording of that version's programs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from devenv.harvester import admission, backends, blocking, versions
from devenv.harvester.admission import find_network
from devenv.harvester.endpoints import ipv4_of
from devenv.harvester.versions import (
    VERSIONS,
    ClientAnnotations,
    Duplicate,
    RemovalCheck,
    Serving,
    Version,
    Words,
    version,
    version_with_tag,
)
from devenv.harvesterrecording import comparable
from devenv.harvesterscenarios import SCENARIOS
from devenv.watch import Document
from tests.devenv.harvester_server import play_on_emulator
from tests.devenv.test_harvester_recordings import Recording, recorded
from tests.support.clock import jumping_time

OTHER_WORDS: Final = Words(
    no_pool="nothing matches {requirement}",
    no_allocator="no allocator {pool}",
    from_pool="pool {pool}: {problem}",
    no_addresses="they have no address",
    removed="{machine} of {cluster} is gone",
    cannot="must not",
    range="{error}",
    scope="it overlaps with {pool}",
)
FAULTS: Final[tuple[tuple[str, str, Any, str], ...]] = (
    ("1.3", "respects_network", True, "client asks for the second network of its VMs"),
    ("1.4", "respects_network", True, "client asks for the second network of its VMs"),
    ("1.8", "respects_network", True, "client asks for the second network of its VMs"),
    ("1.9", "respects_network", False, "client asks for the second network of its VMs"),
    ("1.3", "vm_annotations", ClientAnnotations.KEPT, "network and project of a load balancer for VMs"),
    ("1.4", "vm_annotations", ClientAnnotations.KEPT, "network and project of a load balancer for VMs"),
    ("1.8", "vm_annotations", ClientAnnotations.OVERWRITTEN, "network and project of a load balancer for VMs"),
    ("1.8", "vm_annotations", ClientAnnotations.KEPT, "changes that are rejected"),
    ("1.3", "needs_instance", False, "load balancer for VMs that do not run"),
    ("1.4", "needs_instance", True, "load balancer for VMs that do not run"),
    ("1.8.0", "removal", RemovalCheck.NOT_REMOVED, "guest cluster of a load balancer and the labels of its VMs"),
    ("1.8", "removal", RemovalCheck.NEEDS_MACHINE, "guest cluster of a load balancer and the labels of its VMs"),
    ("1.4", "removal", RemovalCheck.NEEDS_MACHINE, "guest cluster of a load balancer and the labels of its VMs"),
    ("1.8", "removal", RemovalCheck.NONE, "cluster that is being removed"),
    ("1.8", "cleans_up", False, "cluster that is being removed"),
    ("1.3", "listeners_by_protocol", True, "unusual load balancers that are accepted"),
    ("1.4", "listeners_by_protocol", True, "unusual load balancers that are accepted"),
    ("1.8", "listeners_by_protocol", False, "unusual load balancers that are accepted"),
    ("1.4", "names_backend_port", True, "load balancers that are rejected"),
    ("1.8", "names_backend_port", False, "load balancers that are rejected"),
    ("1.3", "checks_specification", True, "changes that are rejected"),
    ("1.4", "checks_specification", False, "changes that are rejected"),
    ("1.3", "loose_scopes", True, "pool of the namespace only"),
    ("1.4", "loose_scopes", True, "pool of the namespace only"),
    ("1.8", "loose_scopes", False, "pool of the namespace only"),
    ("1.3", "selects_again", False, "better pool comes beside an allocation"),
    ("1.4", "selects_again", True, "better pool comes beside an allocation"),
    ("1.3", "reserves_again", True, "entry of the history whose address is allocated to the same load balancer"),
    ("1.4", "reserves_again", False, "entry of the history whose address is allocated to the same load balancer"),
    ("1.3", "releases_all", False, "two allocations of one name are released"),
    ("1.4", "releases_all", True, "two allocations of one name are released"),
    ("1.3", "duplicate", Duplicate.RELEASED, "allocation that a load balancer of the same name left"),
    ("1.4", "duplicate", Duplicate.RELEASED, "allocation that a load balancer of the same name left"),
    ("1.8", "duplicate", Duplicate.STAYS, "allocation that a load balancer of the same name left"),
    ("1.8", "duplicate", Duplicate.NAMED_POOL, "allocation that a load balancer of the same name left"),
    ("1.4", "releases_by_hand", True, "allocation is released by hand"),
    ("1.3", "serving", Serving.WATCHED, "backends of a load balancer for VMs that run"),
    ("1.4", "serving", Serving.BLOCKING, "backends of a load balancer for VMs that run"),
)
WORDS: Final[tuple[tuple[str, str, str], ...]] = (
    ("1.3", "failed", "no pool until one comes"),
    ("1.3", "no_pool", "no pool until one comes"),
    ("1.4", "no_pool", "no pool until one comes"),
    ("1.3", "no_allocator", "named pool does not exist until it is created"),
    ("1.4", "no_allocator", "named pool does not exist until it is created"),
    ("1.3", "from_pool", "full pool until a write"),
    ("1.4", "from_pool", "full pool until a write"),
    ("1.8", "from_pool", "full pool until a write"),
    ("1.4", "no_addresses", "backends come and go"),
    ("1.8", "no_addresses", "backends come and go"),
    ("1.8", "removed", "cluster that is being removed"),
    ("1.8.0", "removed", "cluster that is being removed"),
    ("1.3", "cannot", "pools that are rejected"),
    ("1.4", "cannot", "pools that are rejected"),
    ("1.3", "range", "pools that are rejected"),
    ("1.4", "range", "pools that are rejected"),
    ("1.3", "scope", "pools that are rejected"),
    ("1.4", "scope", "pools that are rejected"),
)


async def differs(number: str, changed: Version, name: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether the emulator of a version with other rules does not what was recorded in a scenario."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    monkeypatch.setattr(versions, "VERSIONS", {**VERSIONS, number: changed})
    found = [comparable(await play_on_emulator(scenario, pick, number), scenario.may_differ) for pick in (min, max)]
    monkeypatch.undo()
    return any(steps not in found for steps in recorded(Recording(scenario, number)))


@pytest.mark.parametrize(("number", "field", "value", "scenario"), FAULTS, ids=str)
@jumping_time
async def test_wrong_rule_is_found(
    number: str, field: str, value: object, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: dict[str, Any] = {field: value}
    changed = replace(version(number), **rule)
    assert changed != version(number)
    assert await differs(number, changed, scenario, monkeypatch)


@pytest.mark.parametrize(("number", "field", "scenario"), WORDS)
@jumping_time
async def test_wrong_word_is_found(number: str, field: str, scenario: str, monkeypatch: pytest.MonkeyPatch) -> None:
    word: dict[str, Any] = {field: getattr(OTHER_WORDS, field)}
    words = replace(version(number).words, **word)
    assert await differs(number, replace(version(number), words=words), scenario, monkeypatch)


def test_programs_say_which_version_they_are() -> None:
    assert version_with_tag("v0.3.0") is version("1.2")
    assert version_with_tag("v1.8.2") is version("1.8")
    assert version_with_tag("v1.9.0-rc3.0.20260807105613-e861dc948324") is version("1.9")
    with pytest.raises(KeyError):
        version_with_tag("v1.7.0")


async def is_found(number: str, name: str) -> bool:
    """Return whether the emulator of a version does not what was recorded in a scenario."""
    scenario = next(one for one in SCENARIOS if one.name == name)
    found = comparable(await play_on_emulator(scenario, min, number), scenario.may_differ)
    return [found] != recorded(Recording(scenario, number))


@jumping_time
async def test_management_network_before_the_one_of_the_client_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def other_order(annotations: Mapping[str, str], instances: Sequence[Document], rules: Version) -> str:
        managed = annotations.get(admission.MANAGEMENT_NETWORK)
        return managed or find_network(annotations, instances, rules)

    monkeypatch.setattr(admission, "find_network", other_order)
    assert await is_found("1.9", "client asks for the second network of its VMs")


@pytest.mark.parametrize("number", ["1.3", "1.4", "1.8", "1.9"])
@jumping_time
async def test_backend_with_only_the_address_of_its_first_interface_is_found(
    number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_first(instance: Document) -> str | None:
        interfaces = instance["status"]["interfaces"][:1]
        return ipv4_of({**instance, "status": {"interfaces": interfaces}})

    for module in (backends, blocking):
        monkeypatch.setattr(module, "ipv4_of", of_first)
    assert await is_found(number, "VM whose first interface has no IPv4 address")
