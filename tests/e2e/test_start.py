"""The start of the process with a file that is missing, and with servers that are unreachable."""

import pytest

from devenv.stage import Stage

pytestmark = pytest.mark.apiserver


def warnings(log: str) -> list[str]:
    """Return the lines of a log above the level info."""
    return [line for line in log.splitlines() if line and "[info " not in line and "[debug " not in line]


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
