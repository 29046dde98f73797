"""The emulated kube-vip keeps other Services waiting as long as the real one, which was measured."""

import json
from dataclasses import fields

import pytest

from devenv.kubevip import KubeVipOptions
from devenv.kubeviptimes import FIRST, TIMES

MEASURED = json.loads(TIMES.read_text())
EMULATED = {field.name: field.default for field in fields(KubeVipOptions)}


@pytest.mark.parametrize("version", MEASURED)
@pytest.mark.parametrize("name", FIRST)
def test_time_is_the_measured_one(version: str, name: str) -> None:
    # A DHCP client varies its attempts by some seconds.
    assert EMULATED[name] == pytest.approx(MEASURED[version][name], rel=0.15)
