"""The steps of a scenario, whatever it is about."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar


class _Step(Protocol):
    @property
    def at_once(self) -> bool:
        """Whether the next step follows without a wait."""


StepT = TypeVar("StepT", bound=_Step)


def groups_of(steps: Iterable[StepT]) -> Iterator[list[StepT]]:
    """Yield the steps, those that are taken at once together."""
    group: list[StepT] = []
    for step in steps:
        group.append(step)
        if not step.at_once:
            yield group
            group = []
