"""What is left out of a load balancer that Harvester rejected for a part of it."""

from typing import Any, Final

import pytest

from harvester_ccm.names import VM_NAME, Reason
from harvester_ccm.plan.service.load_balancer.refused import (
    NO_BACKEND,
    NO_RUNNING_VM,
    SENT_AGAIN_SECONDS,
    Refused,
    refused_part,
    refused_ports_warning,
)
from tests.support.builders import service

SAME_PORT: Final = "create loadbalancer vms/web failed: listener dns-udp has duplicate port 53 with listener dns"
NO_VM: Final = f"update loadbalancer vms/web failed: {NO_RUNNING_VM}"
NOTHING: Final = Refused()


def listener(protocol: str, port: int, backend_port: int = 0) -> dict[str, Any]:
    return {
        "name": f"{protocol.lower()}-{port}",
        "port": port,
        "protocol": protocol,
        "backendPort": backend_port or 30000 + port,
    }


LISTENERS: Final[dict[str, tuple[list[dict[str, Any]], int, set[tuple[str, int]]]]] = {
    "the second of a number is left out": ([listener("TCP", 53), listener("UDP", 53)], 0, {("UDP", 53)}),
    "the first one stays, whatever its protocol": ([listener("UDP", 53), listener("TCP", 53)], 0, {("TCP", 53)}),
    "the one that is checked stays": ([listener("UDP", 53), listener("TCP", 53)], 30053, {("UDP", 53)}),
    "a backend port counts as well": ([listener("TCP", 53), listener("UDP", 54, 30053)], 0, {("UDP", 54)}),
    "all of them at once": (
        [listener("TCP", 53), listener("TCP", 80), listener("UDP", 53), listener("UDP", 80)],
        0,
        {("UDP", 53), ("UDP", 80)},
    ),
}


@pytest.mark.parametrize(("sent", "checked_port", "left_out"), LISTENERS.values(), ids=LISTENERS.keys())
def test_listeners_with_the_number_of_another_one_are_left_out(
    sent: list[dict[str, Any]], checked_port: int, left_out: set[tuple[str, int]]
) -> None:
    part = refused_part(SAME_PORT, {"listeners": sent}, NOTHING, checked_port=checked_port, now=7.0)
    assert part == Refused({"listeners": sent}, frozenset(left_out), 7.0)


PLACEHOLDER: Final = {"backendServerSelector": {VM_NAME: [NO_BACKEND]}}
UNHELPFUL: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "no listener has the number of another one": (SAME_PORT, {"listeners": [listener("TCP", 53)]}),
    "no listener was sent": (SAME_PORT, {}),
    "no VM of the cluster runs": (NO_VM, {"backendServerSelector": {VM_NAME: ["a"]}}),
    "no backend of a new load balancer": (NO_VM, {"workloadType": "vm", **PLACEHOLDER}),
    "another cause": ("exceeded quota", {"listeners": [listener("TCP", 53), listener("UDP", 53)], **PLACEHOLDER}),
}


@pytest.mark.parametrize(("message", "spec"), UNHELPFUL.values(), ids=UNHELPFUL.keys())
def test_rejection_that_no_omission_ends(message: str, spec: dict[str, Any]) -> None:
    assert refused_part(message, spec, NOTHING, checked_port=0, now=0.0) is None


def test_what_is_refused_adds_up_and_is_sent_again_after_an_hour() -> None:
    sent = [listener("TCP", 53), listener("UDP", 53)]
    first = refused_part(SAME_PORT, {"listeners": sent}, NOTHING, checked_port=0, now=0.0)
    assert first is not None
    both = refused_part(NO_VM, PLACEHOLDER, first, checked_port=0, now=5.0)
    assert both == Refused({"listeners": sent, **PLACEHOLDER}, frozenset({("UDP", 53)}), 5.0)
    assert both.holds_for("listeners", sent, 5.0 + SENT_AGAIN_SECONDS - 1)
    assert not both.holds_for("listeners", sent, 5.0 + SENT_AGAIN_SECONDS)
    assert not both.holds_for("listeners", sent[:1], 5.0)
    assert not NOTHING.holds_for("listeners", sent, 0.0)
    assert both.without([("UDP", 53)]).ports == frozenset()


def test_warning_names_the_ports_of_the_service_only() -> None:
    ports = ({"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"})
    refused = frozenset({("UDP", 53), ("UDP", 54)})
    warning = refused_ports_warning(service(ports=ports), refused)
    assert warning is not None
    assert warning.reason is Reason.SYNC_FAILED
    assert warning.message.startswith("Ports 53/UDP are not served")
    assert "54" not in warning.message
    assert refused_ports_warning(service(), refused) is None
