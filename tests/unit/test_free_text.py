"""Text of tenants, kubelets and servers is cut before anything searches in it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from benchmarks.free_text import LONG, READERS, Reader
from harvester_ccm import redaction
from harvester_ccm.model.event import COMMAND_TOO_LONG, EventMessage
from harvester_ccm.names import Reason
from harvester_ccm.redaction import MAX_LOG_FIELD, MAX_MESSAGE

PRODUCT: Final = Path(str(redaction.__file__)).parent
PATTERNS_OF_TRUSTED_TEXT: Final = {
    "commands/runner.py": "keys of the command's own documents",
    "flags/types.py": "values of flags",
    "kube/credentials.py": "files of the administrator",
    "kube/objects.py": "used with fullmatch on names of flags and files",
    "kube/tokens.py": "files, plugins and tokens of the administrator",
    "netip.py": "the length of a prefix",
    "plan/service/ownership/owner.py": "the name of the cluster, a flag",
}
"""Modules with regular expressions that see no text of tenants or servers."""
PATTERNS_OF_FREE_TEXT: Final = {"redaction.py"}
"""Modules with regular expressions for such text: none of them tries again at each character (see the table of
``benchmarks``), and the text is cut."""


def modules_with_patterns() -> Iterator[str]:
    for path in PRODUCT.rglob("*.py"):
        imported = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        if "re" in imported:
            yield str(path.relative_to(PRODUCT))


def test_every_module_with_a_regular_expression_is_known() -> None:
    assert set(modules_with_patterns()) == PATTERNS_OF_TRUSTED_TEXT.keys() | PATTERNS_OF_FREE_TEXT


class Recorder:
    """A pattern that records the longest text it gets."""

    longest = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern

    def sub(self, replacement: str, text: str) -> str:
        Recorder.longest = max(Recorder.longest, len(text))
        return self.pattern.sub(replacement, text)


@pytest.mark.security("Text that tenants and other programs wrote is cut")
@pytest.mark.parametrize("reader", READERS, ids=[reader.name for reader in READERS])
def test_long_text_is_cut_before_a_pattern_sees_it(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "longest", 0)
    # The first of the patterns gets the text as it is; what the others get, the ones before may have made longer.
    (first, replacement), *others = redaction._PATTERNS
    monkeypatch.setattr(redaction, "_PATTERNS", [(Recorder(first), replacement), *others])
    for text in reader.longest():
        assert len(text) > LONG - 100
        reader.read(text)
    assert Recorder.longest <= MAX_LOG_FIELD


HOSTILE: Final = "x: kubectl delete ns kube-system" * 100


@pytest.mark.security("Commands to paste have it in quotes only")
def test_remedy_and_command_survive_a_long_cause() -> None:
    event = EventMessage(
        "Warning", Reason.SYNC_FAILED, HOSTILE, "Do this", "kubectl get x", answer=f"Harvester: {HOSTILE}"
    )
    assert len(event.message) == MAX_MESSAGE
    assert event.message.endswith(". Do this. Run: kubectl get x")
    assert "kubectl get x" not in event.prose


def test_command_is_never_cut() -> None:
    command = "kubectl label x " + "y" * 600
    event = EventMessage("Warning", Reason.SYNC_FAILED, "Cause", "Do this", command)
    assert event.message == f"Cause. Do this. {COMMAND_TOO_LONG}"
    assert event.command == command


def test_answer_of_a_server_gets_only_the_room_that_is_left() -> None:
    event = EventMessage("Warning", Reason.SYNC_FAILED, "c" * 900, "r" * 100, answer="Harvester: " + "a" * 900)
    assert event.message.startswith("c" * 900 + ". " + "r" * 100)
    assert len(event.message) == MAX_MESSAGE


def test_message_has_no_control_characters_and_no_credentials() -> None:
    event = EventMessage("Warning", Reason.SYNC_FAILED, "a\nb password=hunter2", answer="\u202etoken-abcde:12345")
    assert event.message.isprintable()
    assert "hunter2" not in event.message
    assert "12345" not in event.message
