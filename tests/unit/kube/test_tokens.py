"""What a bearer token says about itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harvester_ccm.kube.tokens import credential_text, token_account, token_end
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


@pytest.mark.parametrize(
    ("token", "account"),
    [
        (json_web_token({"sub": "system:serviceaccount:default:demo"}), "default/demo"),
        (json_web_token({"sub": "system:serviceaccount:default:demo.v2"}), "default/demo.v2"),
        # What is no name of Kubernetes is not told: it stands in a command to paste.
        (json_web_token({"sub": "system:serviceaccount:default:$(reboot)"}), ""),
        (json_web_token({"sub": "system:serviceaccount:default:-x"}), ""),
        (json_web_token({"sub": f"system:serviceaccount:default:{'x' * 300}"}), ""),
        (json_web_token({"sub": "user"}), ""),
        (json_web_token({"sub": ["system:serviceaccount:default:demo"]}), ""),
        (json_web_token({}), ""),
        ("kubeconfig-u-abcdef:opaque", ""),
        (None, ""),
    ],
)
def test_a_token_may_say_whose_it_is(token: str | None, account: str) -> None:
    assert token_account(token) == account


NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (json_web_token({"exp": 1700000000}), "the token in /cc, which expired on 2023-11-14 22:13 UTC"),
        (json_web_token({"exp": 1800000000}), "the token in /cc, which is valid until 2027-01-15 08:00 UTC"),
        (
            json_web_token({"sub": "system:serviceaccount:default:demo"}),
            "the token of ServiceAccount default/demo in /cc",
        ),
        ("kubeconfig-u-abcdef:opaque", "the token in /cc"),
        ("", "the credential in /cc"),
    ],
)
def test_text_for_a_rejected_credential(token: str, expected: str) -> None:
    assert credential_text(token, "/cc", NOW) == expected
