"""Provider IDs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.model.core import format_provider_id, parse_provider_id

UID = "c9b1f1a2-5c1e-4b7e-9a52-1d2f3a4b5c6d"


def test_form_stored_on_nodes() -> None:
    assert format_provider_id(UID) == f"harvester://{UID}"


@pytest.mark.parametrize(
    ("provider_id", "uid"),
    [
        pytest.param(f"harvester://{UID}", UID, id="ours"),
        pytest.param("", None, id="none yet"),
        pytest.param("k3s://w1", None, id="K3s' own"),
        pytest.param("aws:///eu-west-1a/i-0123", None, id="another cloud"),
        pytest.param("harvester://", None, id="no UID"),
        pytest.param("harvester:///ns/w1", None, id="a path instead of a UID"),
        pytest.param(UID, None, id="bare UID"),
    ],
)
def test_uid_in_it(provider_id: str, uid: str | None) -> None:
    assert parse_provider_id(provider_id) == uid


@given(st.uuids().map(str))
def test_every_uid_comes_back(uid: str) -> None:
    assert parse_provider_id(format_provider_id(uid)) == uid
