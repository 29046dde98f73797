"""Single programs built once from their Go modules and kept in the project's cache beside the servers."""

from __future__ import annotations

import fcntl
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devenv import gosource
from devenv.binaries import cache_directory, platform_name
from devenv.process import ChildProcess, DevenvError

_BUILD_SECONDS = 1800.0


@dataclass(frozen=True)
class GoTool:
    """A program whose version is pinned in a Go module of this project."""

    name: str
    title: str
    """Name for people."""
    version: str
    module: Path
    """Directory with the ``go.mod`` and ``go.sum`` that pin it."""
    package: str
    takes: str
    """How long the build takes, for people who wait for it."""
    linker_flags: str = "-s -w"

    def binary(self) -> Path:
        """Return the path of the program, built first where it is missing. Raises DevenvError when it cannot be."""
        cache = cache_directory()
        final = cache / f"{self.name}-{self.version}-{platform_name()}" / self.name
        if not final.exists():
            cache.mkdir(parents=True, exist_ok=True)
            # The lock of the servers' builds: two builds at once would take each other's memory and cores.
            with (cache / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not final.exists():
                    self._build(final, cache)
        return final

    def _build(self, final: Path, cache: Path) -> None:
        # The servers' way to find Go and to compile for this machine.
        go = gosource.toolchain(cache)
        environment = gosource.environment_for(platform_name())
        text = f"building {self.title} {self.version} from source with {go}: {self.takes} on 2 cores, only once"
        print(text, file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=cache) as name:
            work = Path(name)
            command: list[str | Path] = [go, "build", "-mod=readonly", "-trimpath", "-ldflags", self.linker_flags]
            command += ["-o", work / self.name, self.package]
            child = ChildProcess.start("go build", command, log_file=work / "log", cwd=self.module, env=environment)
            try:
                ended = child.wait(_BUILD_SECONDS)
            finally:
                child.stop()
            if not ended or child.exit_code() != 0:
                raise DevenvError(f"go build of {self.title} {self.version} failed:\n{child.log_tail(30)}")
            final.parent.mkdir(parents=True, exist_ok=True)
            (work / self.name).replace(final)
