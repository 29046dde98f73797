"""Claims of bearer tokens: expiry and ServiceAccount."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devenv.pki import Authority
from harvester_ccm.kube.tokens import credential_text, token_claims
from tests.support.offline import json_web_token

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)
SUBJECT = "system:serviceaccount:default:"


@pytest.mark.parametrize(
    ("claims", "expiry", "account", "text"),
    [
        ({"exp": 1700000000}, 1700000000.0, "", "the token in /cc, which expired on 2023-11-14 22:13 UTC"),
        ({"exp": 1800000000.5}, 1800000000.5, "", "the token in /cc, which is valid until 2027-01-15 08:00 UTC"),
        ({"sub": f"{SUBJECT}demo.v2"}, None, "default/demo.v2", "the token of ServiceAccount default/demo.v2 in /cc"),
        # The account is part of a command to copy: only valid names of Kubernetes are printed.
        ({"sub": f"{SUBJECT}$(reboot)"}, None, "", "the token in /cc"),
        ({"sub": f"{SUBJECT}{'x' * 300}"}, None, "", "the token in /cc"),
        ({"sub": [f"{SUBJECT}demo"]}, None, "", "the token in /cc"),
        ({"sub": "user", "exp": None}, None, "", "the token in /cc"),
        ({"exp": 1e300}, None, "", "the token in /cc"),
        ({"exp": "tomorrow"}, None, "", "the token in /cc"),
        ([], None, "", "the token in /cc"),
    ],
)
def test_claims_of_a_json_web_token(claims: object, expiry: float | None, account: str, text: str) -> None:
    token = json_web_token(claims)
    end, found = token_claims(token)
    assert ((end and end.timestamp()), found) == (expiry, account)
    assert credential_text(token, "/cc", NOW) == text


@pytest.mark.parametrize("token", ["kubeconfig-u-abcdef:opaque", "a.b.c", "a.\u00e9.c", "a.gA.c"])
def test_other_tokens_have_no_claims(token: str) -> None:
    assert token_claims(token) == (None, "")
    assert credential_text(token, "/cc", NOW) == "the token in /cc"
    assert credential_text("", "/cc", NOW) == "the credential in /cc"


def test_end_of_a_client_certificate_is_named(tmp_path: Path) -> None:
    certificate = Authority("test", tmp_path).issue_client("me", "me").certificate.read_bytes()
    ended = credential_text("", "/cc", NOW + timedelta(days=10000), certificate)
    assert re.fullmatch(r"the client certificate in /cc, which expired on 20\d\d-\d\d-\d\d \d\d:\d\d UTC", ended)
    assert credential_text("", "/cc", NOW, b"no certificate") == "the client certificate in /cc"
