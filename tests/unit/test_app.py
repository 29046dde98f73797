"""The application as it is put together: what it shows before it leads."""

from __future__ import annotations

from harvester_ccm.app import Application
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.client import WriteFence
from harvester_ccm.telemetry.health import LIVE, READY
from harvester_ccm.telemetry.metrics import Telemetry
from tests.unit.telemetry.test_metrics import samples
from tests.worlds.offline import offline_client


async def test_a_waiting_process_shows_its_own_state_and_nothing_of_services() -> None:
    settings = build_settings(parse_command_line(["--cloud-config=/missing", "--cluster-name=demo"]), {})
    telemetry = Telemetry("1")
    application = Application(
        settings,
        offline_client("guest"),
        offline_client("harvester"),
        fence=WriteFence(shut=True),
        reloaders=(),
        telemetry=telemetry,
    )

    shown = samples(telemetry)

    assert shown["harvester_ccm_events_dropped_total"] == {(): 0}
    assert shown["leader_election_master_status"] == {(("name", "cloud-controller-manager"),): 0}
    assert not {"harvester_ccm_services_pending", "harvester_ccm_load_balancers"} & shown.keys()
    assert list(application.health.results(LIVE)) == ["ping"]
    assert {name for name, passed in application.health.results(READY).items() if not passed} == {"caches-synced"}
