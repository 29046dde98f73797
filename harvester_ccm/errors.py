"""Errors of the configuration; errors of requests are in ``kube/errors.py``."""

from collections.abc import Sequence

from harvester_ccm.kube.errors import KubeError


class ConfigurationError(KubeError):
    """Raised when flags or files cannot be used. Contains every problem found, not only the first.

    >>> str(ConfigurationError(["one", "two"]))
    'one; two'
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
