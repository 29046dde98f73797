"""What every scene of the demo works with."""

from __future__ import annotations

from dataclasses import dataclass

from devenv.ccm import CcmProcess
from devenv.demo.tables import TableReader
from devenv.demo.voice import Voice
from devenv.stage import Stage


class Disappointment(Exception):
    """Raised when the demo does not see what it expects; the text says what was seen."""


@dataclass(frozen=True)
class Play:
    """The running scene and the means to show it."""

    voice: Voice
    stage: Stage
    guest: TableReader
    harvester: TableReader
    run: CcmProcess
    """The program."""


def expect(condition: object, otherwise: str) -> None:
    """Raise Disappointment with the text unless the condition holds."""
    if not condition:
        raise Disappointment(otherwise)
