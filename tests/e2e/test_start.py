"""The start of the process with a file that is missing, and with servers that are unreachable."""

from pathlib import Path

import pytest

from devenv.stage import Scene, Stage
from tests.e2e.observing import outcome

pytestmark = pytest.mark.apiserver


def warnings(log: str) -> list[str]:
    """Return the lines of a log above the level info."""
    return [line for line in log.splitlines() if line and "[info " not in line and "[debug " not in line]


@pytest.mark.parametrize(
    ("flag", "code", "message"),
    [("cloud_config", 255, "cannot use --cloud-config"), ("kubeconfig", 1, "guest cluster")],
)
def test_missing_file_ends_the_start_with_one_line(
    scene: Scene, tmp_path: Path, flag: str, code: int, message: str
) -> None:
    path = tmp_path / "given"
    files = {"cloud_config": scene.cloud_config, "kubeconfig": scene.kubeconfig} | {flag: path}
    exit_code, log = outcome(tmp_path, cloud_config=files["cloud_config"], kubeconfig=files["kubeconfig"])
    line = f"harvester-ccm: error: {message}: {path}: No such file or directory"
    assert (exit_code, warnings(log)) == (code, [line])


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
