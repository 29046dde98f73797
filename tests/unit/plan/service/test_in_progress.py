"""Whether Harvester is still working on the address of a load balancer."""

from __future__ import annotations

import pytest

from harvester_ccm.plan.service.messages import is_in_progress
from tests.worlds.builders import allocated, marked


def test_address_or_refusal_ends_the_allocation() -> None:
    assert is_in_progress(marked())
    assert not is_in_progress(allocated())
    assert not is_in_progress(marked(ip="0.0.0.0"))
    assert not is_in_progress(marked(message="no matched IPPool with requirement &{}"))


def test_deletion_is_in_progress_while_an_address_is_allocated() -> None:
    assert not is_in_progress(marked(deleting=True))
    assert is_in_progress(marked(deleting=True, ip="192.168.100.20"))


@pytest.mark.parametrize(
    "message",
    [
        "fail to get ip from pool lan, error: fail to reserve 10.0.0.1 into lan",
        "fail to get ip from pool lan, error: 10.0.0.1 has been allocated to vms/a, duplicate allocation",
        'Operation cannot be fulfilled on ippools "lan": the object has been modified',
    ],
)
def test_failure_that_harvester_retries_at_once_is_in_progress(message: str) -> None:
    assert is_in_progress(marked(message=message))
