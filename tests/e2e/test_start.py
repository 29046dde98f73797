"""The start of the process with files that cannot be used, and with servers that are unreachable."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from devenv.stage import Scene, Stage
from harvester_ccm.names import Reason
from tests.e2e.observing import outcome

pytestmark = pytest.mark.apiserver


def absent(path: Path, _valid: Path) -> str:
    return f"{path}: No such file or directory"


def directory(path: Path, _valid: Path) -> str:
    path.mkdir()
    return f"{path}: Is a directory"


def empty(path: Path, _valid: Path) -> str:
    path.touch()
    return f"{path}: current-context: not set; name the context to use"


def without_its_context(path: Path, valid: Path) -> str:
    path.write_text(yaml.safe_dump({**yaml.safe_load(valid.read_text()), "current-context": "nowhere"}))
    return f"{path}: context 'nowhere' not found; available: default"


def warnings(log: str) -> list[str]:
    """Return the lines of a log above the level info."""
    return [line for line in log.splitlines() if line and "[info " not in line and "[debug " not in line]


@pytest.mark.parametrize(
    ("flag", "code", "message"),
    [("cloud_config", 255, "cannot use --cloud-config"), ("kubeconfig", 1, "guest cluster")],
)
@pytest.mark.parametrize("prepare", [absent, directory, empty, without_its_context])
def test_unusable_file_ends_the_start_with_one_line(
    scene: Scene, tmp_path: Path, flag: str, code: int, message: str, prepare: Callable[[Path, Path], str]
) -> None:
    path = tmp_path / "given"
    cause = prepare(path, getattr(scene, flag))
    files = {"cloud_config": scene.cloud_config, "kubeconfig": scene.kubeconfig} | {flag: path}
    exit_code, log = outcome(tmp_path, cloud_config=files["cloud_config"], kubeconfig=files["kubeconfig"])
    assert (exit_code, warnings(log)) == (code, [f"harvester-ccm: error: {message}: {cause}"])


@pytest.mark.usefixtures("lan")
async def test_rejected_token_is_logged_once_per_collection_and_reported_by_an_event(
    stage: Stage, tmp_path: Path
) -> None:
    document = yaml.safe_load(stage.scene.cloud_config.read_text())
    document["users"][0]["user"]["token"] = "nonsense"
    path = tmp_path / "given"
    path.write_text(yaml.safe_dump(document))
    flags = {"leader-elect": "false"}
    run = stage.run(cloud_config=path, flags=flags)
    await stage.create_service("web")
    event = await stage.hears("web", Reason.HARVESTER_UNAVAILABLE)
    assert "does not accept the token in " in event.message
    lines = [line for line in warnings(run.log) if "list or watch failed" in line]
    text = f"{stage.scene.harvester.url} does not accept the token in {path}: Unauthorized"
    assert lines
    assert all(text in line and "collection=harvester/" in line for line in lines)
    assert len(lines) == len({line.partition(" error=")[0].partition("collection=")[2] for line in lines})
    assert await stage.told("web") == [event]

    run.terminate(0)
    await stage.ended(run)
    stage.run(flags=flags)
    await stage.served("web")


@pytest.mark.usefixtures("lan")
@pytest.mark.parametrize(
    ("side", "recovered"), [("harvester", "list and watch recovered"), ("guest", "lease requests recovered")]
)
async def test_services_get_addresses_when_a_server_is_unreachable_at_the_start(
    stage: Stage, side: str, recovered: str
) -> None:
    proxy = getattr(stage, f"{side}_proxy")
    await stage.create_service("early")
    await proxy.down()
    run = stage.run(proxied=True)
    await stage.logged(run, "list or watch failed")
    await stage.create_service("meanwhile")
    assert run.exit_code is None

    await proxy.up()
    await stage.served("early", "meanwhile", within=60)
    assert run.exit_code is None
    lines = [line for line in warnings(run.log) if "list or watch failed" in line]
    assert all(f"{proxy.url}: connection failed: Connection refused" in line for line in lines)
    assert recovered in run.log
    assert run.log.count("lease requests failed") == run.log.count("lease requests recovered") == (side == "guest")
