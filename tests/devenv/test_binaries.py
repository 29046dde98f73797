"""Where server programs come from, with a small archive and a small build in place of the real ones."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devenv import binaries, envtest, gosource
from devenv.process import DevenvError


class Sources:
    """A cache, an archive that can be published, and a count of builds."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cache = directory / "cache"
        self.archive = directory / "archive.tar.gz"
        self.builds: list[str] = []
        self._monkeypatch = monkeypatch
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        monkeypatch.setenv("HARVESTER_CCM_CACHE", str(self.cache))
        monkeypatch.setattr(envtest, "_URL", self.archive.as_uri())
        monkeypatch.setattr(gosource, "build", self._build)

    def _build(self, program: str, directory: Path, *, cache: Path, platform: str) -> None:
        assert (cache, platform) == (self.cache, binaries.platform_name())
        self.builds.append(program)
        put(directory / program)

    def publish(self, *programs: str, checksum: str | None = None) -> None:
        with tarfile.open(self.archive, "w:gz") as archive:
            for program in programs:
                entry = tarfile.TarInfo(f"controller-tools/envtest/{program}")
                entry.size = len(program)
                archive.addfile(entry, io.BytesIO(program.encode()))
        real = hashlib.sha512(self.archive.read_bytes()).hexdigest()
        self._monkeypatch.setattr(envtest, "_SHA512", {binaries.platform_name(): checksum or real})


def put(program: Path) -> Path:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("program")
    program.chmod(0o755)
    return program


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(tmp_path, monkeypatch)


def test_assets_of_the_environment_come_first(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binaries.require("etcd", "kubectl")
    own = put(tmp_path / "assets" / "etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(own.parent))

    found = binaries.require("etcd", "kubectl")

    assert found["etcd"] == own
    assert found["kubectl"].is_relative_to(sources.cache)


def test_published_archive_is_preferred_over_a_build(sources: Sources) -> None:
    sources.publish(*envtest.PROGRAMS, "README")

    found = binaries.require()

    assert {name: path.read_text() for name, path in found.items()} == {
        "etcd": "etcd",
        "kube-apiserver": "kube-apiserver",
    }
    assert sources.builds == []
    assert sorted(path.name for path in found["etcd"].parent.iterdir()) == sorted(envtest.PROGRAMS)


@pytest.mark.parametrize("programs", [envtest.PROGRAMS, ("etcd",)], ids=["wrong checksum", "incomplete"])
def test_archive_that_is_not_the_reviewed_one_is_not_used(
    sources: Sources, programs: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sources.publish(*programs, checksum="0" * 128 if programs == envtest.PROGRAMS else None)

    found = binaries.require("etcd")

    assert sources.builds == ["etcd"]
    assert found["etcd"].read_text() == "program"
    assert "not using the envtest archive" in capsys.readouterr().err


def test_program_is_built_once_and_only_when_asked_for(sources: Sources) -> None:
    first = binaries.require()
    second = binaries.require("etcd", "kube-apiserver")

    assert first == second
    assert sources.builds == ["etcd", "kube-apiserver"]
    binaries.require("kube-controller-manager", "etcd")
    assert sources.builds[2:] == ["kube-controller-manager"]


def test_program_is_built_once_for_all_who_ask_at_the_same_time(sources: Sources) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(binaries.require, "kube-controller-manager") for _ in range(4)]

    assert len({answer.result()["kube-controller-manager"] for answer in answers}) == 1
    assert sources.builds == ["kube-controller-manager"]


def test_failed_build_leaves_nothing_in_the_cache(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(program: str, directory: Path, **_: object) -> None:
        put(directory / program)
        raise DevenvError("out of memory")

    monkeypatch.setattr(gosource, "build", fail)

    with pytest.raises(DevenvError, match="out of memory"):
        binaries.require("kubectl")

    assert not list(sources.cache.rglob("kubectl"))


@pytest.mark.usefixtures("sources")
def test_unknown_program_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DevenvError, match=r"unknown programs \['kubelet'\]: expected some of \['etcd'"):
        binaries.require("kubelet")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HARVESTER_CCM_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg"}, "/xdg/harvester-ccm"),
        ({"HOME": "/home/me"}, "/home/me/.cache/harvester-ccm"),
    ],
)
def test_cache_is_where_the_environment_says(
    environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HARVESTER_CCM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert binaries.cache_directory() == Path(expected)


def test_module_pins_the_versions_that_are_named() -> None:
    go_mod = (Path(gosource.__file__).parent / "gobuild" / "go.mod").read_text()
    required = dict(re.findall(r"^\t(\S+) (v\S+)$", go_mod, re.MULTILINE))

    assert required.pop("go.etcd.io/etcd/server/v3") == gosource.ETCD_VERSION
    assert required.pop("k8s.io/kubernetes") == gosource.KUBERNETES_VERSION
    assert set(required.values()) == {gosource.KUBERNETES_VERSION.replace("v1.", "v0.")}
