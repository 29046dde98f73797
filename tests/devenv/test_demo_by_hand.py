"""What ``make dev`` reads from its terminal, and what it breaks, without servers."""

from __future__ import annotations

import os
import time

import yaml

from devenv.demo.byhand import Typed
from devenv.demo.faults import expire_token
from harvester_ccm.kube.tokens import token_end


def test_typed_words_are_those_of_whole_lines() -> None:
    reading, writing = os.pipe()
    typed = Typed(reading)
    assert typed.words() == []
    os.write(writing, b"no-pool\nno-")
    assert typed.words() == ["no-pool"]
    os.write(writing, b"agent \n\nnone\n")
    assert typed.words() == ["no-agent", "none"]
    os.close(writing)
    assert typed.words() == []
    os.close(reading)
    # Whoever has closed it types nothing.
    assert Typed(reading).words() == []


def test_expired_token_says_so() -> None:
    claims = "eyJleHAiOjQxMDI0NDQ4MDAsInN1YiI6InN5c3RlbSJ9"
    source = {"users": [{"name": "default", "user": {"token": f"head.{claims}.signature"}}], "clusters": []}
    written = yaml.safe_load(expire_token(yaml.safe_dump(source)))
    end = token_end(written["users"][0]["user"]["token"])
    assert end is not None
    assert end.timestamp() < time.time()
