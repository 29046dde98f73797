"""The mapping of networks to devices, as it is read from its ConfigMap."""

from __future__ import annotations

import pytest

from harvester_ccm.model.core import ConfigMap, published_devices
from harvester_ccm.names import NAD_MAPPING_KEY


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        pytest.param('{"infra/vlan9": "eth1", "vlan8": ""}', {"infra/vlan9": "eth1", "vlan8": ""}, id="entries"),
        pytest.param("{}", {}, id="no entries"),
        pytest.param("", {}, id="empty"),
        pytest.param(None, {}, id="no such key"),
        pytest.param("null", None, id="null"),
        pytest.param("x", None, id="no JSON"),
        pytest.param('{"vlan8": "eth1"', None, id="cut short"),
        pytest.param('{"vlan8":' + "[" * 2000, None, id="nested too deep"),
        pytest.param('["vlan8"]', None, id="no object"),
        pytest.param('{"vlan8": "eth1", "vlan9": 1}', None, id="a device that is no text"),
        pytest.param('{"vlan8": "\\ud800"}', None, id="text that cannot be written back"),
    ],
)
def test_text_of_the_mapping(text: str | None, devices: dict[str, str] | None) -> None:
    assert published_devices(ConfigMap(data=None if text is None else {NAD_MAPPING_KEY: text})) == devices


def test_no_config_map() -> None:
    assert published_devices(None) is None
