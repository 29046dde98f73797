"""What a bearer token says about itself."""

from __future__ import annotations

import pytest

from harvester_ccm.kube.tokens import token_end
from tests.worlds.offline import json_web_token


@pytest.mark.parametrize(
    ("token", "expiry"),
    [
        (json_web_token({"exp": 1800000000, "iss": "kubernetes/serviceaccount"}), 1800000000.0),
        (json_web_token({"exp": 1800000000.5}), 1800000000.5),
        (json_web_token({"iss": "kubernetes/serviceaccount"}), None),
        (json_web_token({"exp": None}), None),
        (json_web_token({"exp": "tomorrow"}), None),
        (json_web_token([]), None),
        ("kubeconfig-u-abcdef:opaque", None),
        ("a.b.c", None),
        ("a.\u00e9.c", None),
        ("a.gA.c", None),
        ("", None),
        (None, None),
    ],
)
def test_a_token_may_say_when_it_expires(token: str | None, expiry: float | None) -> None:
    end = token_end(token)
    assert (end and end.timestamp()) == expiry
