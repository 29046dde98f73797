"""Credentials that cannot be used, and servers that are not there: said once and plainly, never a crash."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from devenv.proxy import FaultProxy
from devenv.restclient import Json
from devenv.stage import Scene, Stage
from harvester_ccm.names import Reason
from tests.e2e.observing import outcome

pytestmark = pytest.mark.apiserver

EXIT_CLOUD_CONFIG = 255
EXIT_FAILURE = 1
ALONE = {"leader-elect": "false"}


def changed(source: Path, target: Path, change: Callable[[Json], None]) -> Path:
    """Write a changed copy of a kubeconfig and return its path."""
    document: Json = yaml.safe_load(source.read_text())
    change(document)
    target.write_text(yaml.safe_dump(document))
    return target


def point_nowhere(document: Json) -> None:
    document["current-context"] = "nowhere"


def absent(path: Path, _good: Path) -> str:
    return f"{path}: No such file or directory"


def directory(path: Path, _good: Path) -> str:
    path.mkdir()
    return f"{path}: Is a directory"


def empty(path: Path, _good: Path) -> str:
    path.touch()
    return f"{path}: current-context: not set; name the context to use"


def without_its_context(path: Path, good: Path) -> str:
    changed(good, path, point_nowhere)
    return f"{path}: context 'nowhere' not found; available: default"


FILES = pytest.mark.parametrize("prepare", [absent, directory, empty, without_its_context])
"""Each makes an unusable file and returns what is to be said about it."""


def complaints(log: str) -> list[str]:
    """Return the lines that are more than information."""
    return [line for line in log.splitlines() if line and "[info " not in line and "[debug " not in line]


@FILES
def test_cloud_config_that_cannot_be_used(scene: Scene, tmp_path: Path, prepare: Callable[[Path, Path], str]) -> None:
    path = tmp_path / "given"
    expected = prepare(path, scene.cloud_config)
    code, log = outcome(scene, tmp_path, cloud_config=path)

    assert code == EXIT_CLOUD_CONFIG
    assert complaints(log) == [f"harvester-ccm: error: cannot use --cloud-config: {expected}"]


@FILES
def test_guest_kubeconfig_that_cannot_be_used(
    scene: Scene, tmp_path: Path, prepare: Callable[[Path, Path], str]
) -> None:
    path = tmp_path / "given"
    expected = prepare(path, scene.kubeconfig)
    code, log = outcome(scene, tmp_path, kubeconfig=path)

    assert code == EXIT_FAILURE
    assert complaints(log) == [f"harvester-ccm: error: guest cluster: {expected}"]


def with_wrong_token(document: Json, _scene: Scene) -> None:
    document["users"][0]["user"]["token"] = "nonsense"


def with_wrong_authority(document: Json, scene: Scene) -> None:
    authority = base64.b64encode(scene.guest.ca_file.read_bytes()).decode()
    document["clusters"][0]["cluster"]["certificate-authority-data"] = authority


@pytest.mark.usefixtures("lan")
@pytest.mark.parametrize(
    ("spoil", "logged", "told"),
    [
        pytest.param(
            with_wrong_token,
            "{server} does not accept the token in {file}: Unauthorized",
            "does not accept the token in ",
            id="token",
        ),
        pytest.param(
            with_wrong_authority,
            "the server's certificate is not trusted",
            "the server's certificate is not trusted: unable to get local issuer certificate",
            id="authority",
        ),
    ],
)
async def test_cloud_config_that_harvester_does_not_go_with(
    stage: Stage, tmp_path: Path, spoil: Callable[[Json, Scene], None], logged: str, told: str
) -> None:
    scene = stage.scene
    given = changed(scene.cloud_config, tmp_path / "given", lambda document: spoil(document, scene))
    run = stage.run(cloud_config=given, flags=ALONE)
    await stage.create_service("web")

    event = await stage.hears("web", Reason.HARVESTER_UNAVAILABLE)

    assert told in event.message
    said = [line for line in complaints(run.log) if "list or watch failed" in line]
    assert said
    words = logged.format(server=scene.harvester.url, file=given)
    assert all(words in line and "collection=harvester/" in line for line in said)
    assert len(said) == len({line.partition(" error=")[0].partition("collection=")[2] for line in said})
    assert run.exit_code is None
    assert await stage.told("web") == [event]

    run.terminate(0)
    await stage.ended(run)
    stage.run(flags=ALONE)
    await stage.served("web")


async def comes_late(stage: Stage, proxy: FaultProxy) -> str:
    """Start the program while a server is away, then let the server come; return the log."""
    await stage.create_service("early")
    await proxy.down()
    run = stage.run(proxied=True)
    await stage.logged(run, "list or watch failed")
    await stage.create_service("meanwhile")
    assert run.exit_code is None

    await proxy.up()
    await stage.served("early", "meanwhile", within=60)
    assert run.exit_code is None
    return run.log


@pytest.mark.usefixtures("lan")
async def test_harvester_is_down_at_the_start(stage: Stage) -> None:
    log = await comes_late(stage, stage.harvester_proxy)

    said = [line for line in complaints(log) if "list or watch failed" in line]
    assert all(f"{stage.harvester_proxy.url}: connection failed: Connection refused" in line for line in said)
    assert "list and watch recovered" in log


@pytest.mark.usefixtures("lan")
async def test_guest_is_down_at_the_start(stage: Stage) -> None:
    log = await comes_late(stage, stage.guest_proxy)

    said = [line for line in complaints(log) if "list or watch failed" in line]
    assert all(f"{stage.guest_proxy.url}: connection failed: Connection refused" in line for line in said)
    assert "became leader" in log
    assert (log.count("lease requests failed"), log.count("lease requests recovered")) == (1, 1)
