"""Running a command in this process, on files."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harvester_ccm.cli import main
from harvester_ccm.commands import call
from harvester_ccm.logs import configure_logging

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A run of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Json:
        """The JSON that was printed."""
        document = json.loads(self.out)
        assert isinstance(document, dict)
        return document


Runner = Callable[..., Run]
Writer = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    """A function that runs ``harvester-ccm`` with the given words; ``stdin`` is what it can read."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(call, "configure_logging", partial(configure_logging, cache=False))

    def start(*words: str, stdin: str = "") -> Run:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(["harvester-ccm", *words], {})
        captured = capsys.readouterr()
        return Run(code, captured.out, captured.err)

    return start


@pytest.fixture
def case(tmp_path: Path) -> Writer:
    """A function that writes objects as a List into a file and returns its name."""

    def write(*objects: Json, name: str = "case.json") -> str:
        path = tmp_path / name
        path.write_text(json.dumps(listed(objects)))
        return str(path)

    return write


def listed(objects: Iterable[Json]) -> Json:
    """Return the objects as ``kubectl get -o json`` does."""
    return {"apiVersion": "v1", "kind": "List", "items": list(objects)}
