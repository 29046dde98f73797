"""What is left out of a load balancer that Harvester rejected for some of its listeners."""

from typing import Any, Final

import pytest

from harvester_ccm.names import Reason
from harvester_ccm.plan.service.load_balancer.refused import (
    Refused,
    refused_by,
    refused_ports_warning,
)
from tests.support.builders import service

SAME_BACKEND_PORT: Final = "create loadbalancer vms/web failed: listener b has duplicate backend port 30053 with a"
SAME_PORT: Final = "create loadbalancer vms/web failed: listener dns-udp has duplicate port 53 with listener dns"


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
    expected = Refused(sent, frozenset(left_out), 7.0)
    for message in (SAME_PORT, SAME_BACKEND_PORT):
        assert refused_by(message, sent, checked_port=checked_port, now=7.0) == expected


UNHELPFUL: Final[dict[str, tuple[str, list[dict[str, Any]]]]] = {
    "no listener has the number of another one": (SAME_PORT, [listener("TCP", 53)]),
    "no listener was sent": (SAME_PORT, []),
    "another cause": ("exceeded quota", [listener("TCP", 53), listener("UDP", 53)]),
}


@pytest.mark.parametrize(("message", "sent"), UNHELPFUL.values(), ids=UNHELPFUL.keys())
def test_rejection_that_no_omission_ends(message: str, sent: list[dict[str, Any]]) -> None:
    assert refused_by(message, sent, checked_port=0, now=0.0) is None


def test_refused_listeners_are_sent_again_after_an_hour_or_with_another_listener() -> None:
    sent = [listener("TCP", 53), listener("UDP", 53)]
    refused = refused_by(SAME_PORT, sent, checked_port=0, now=5.0)
    assert refused is not None
    assert refused.left_out_of(sent, 3604.0) == {("UDP", 53)}
    assert refused.left_out_of(sent, 3605.0) == frozenset()
    assert refused.left_out_of([*sent, listener("TCP", 80)], 5.0) == frozenset()
    assert Refused().left_out_of(sent, 0.0) == frozenset()
    assert refused.without([("UDP", 53)]).ports == frozenset()


def test_warning_names_the_ports_of_the_service_only() -> None:
    ports = ({"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"})
    refused = frozenset({("UDP", 53), ("UDP", 54)})
    warning = refused_ports_warning(service(ports=ports), refused)
    assert warning is not None
    assert warning.reason is Reason.SYNC_FAILED
    assert warning.message.startswith("Ports 53/UDP are not served")
    assert "54" not in warning.message
    assert refused_ports_warning(service(), refused) is None
