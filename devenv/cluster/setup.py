"""What the capsule gets from outside: files and options."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

PATHS = ("debian", "work", "out")


@dataclass(frozen=True)
class Setup:
    """All paths are absolute."""

    programs: dict[str, str]
    """Path of each program that ``devenv.binaries`` found or built."""
    debian: Path
    """Archive of the file system of the nodes."""
    archives: dict[str, str]
    """Path of the archive of each image, by its file name."""
    agnhost: str
    """Name of the image of Kubernetes' program for tests."""
    work: Path
    """Mount point for data in memory."""
    out: Path
    """Directory of logs and results, which stays."""
    specs: list[str]
    """Names of Kubernetes' specs."""
    values: list[str]
    """Values of the chart at its installation, as ``NAME=VALUE``."""
    parallel: int
    """Number of specs at a time."""
    harvester_bin: str
    """Directory of Harvester's programs; empty means the emulator."""
    keep: bool
    """Whether the cluster stays after the steps until the user ends it."""

    @property
    def root(self) -> Path:
        """File system of the nodes, which only the capsule sees."""
        return self.work / "debian"

    def write(self, file: Path) -> None:
        """Write this setup as JSON."""
        file.write_text(json.dumps(asdict(self), default=str))

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a setup that ``write`` wrote."""
        fields: dict[str, Any] = json.loads(file.read_text())
        return cls(**{**fields, **{name: Path(fields[name]) for name in PATHS}})
