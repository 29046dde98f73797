"""An informer on a real API server: every kind of interruption."""

from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from devenv.apiserver import ControlPlane
from devenv.faults import Answer
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import ConnectionRefused, Forbidden, Gone, Unauthorized, Unreachable
from harvester_ccm.kube.informer import Informer
from harvester_ccm.model.core import CONFIG_MAPS
from tests.apiserver.follower import Follower
from tests.conftest import bind
from tests.support.background import running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

Put = Callable[..., None]
Delete = Callable[[str], None]


INFORMER = "harvester_ccm.kube.informer."


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without the delays that only protect servers."""
    monkeypatch.setattr(INFORMER + "RECONNECT_SECONDS", 0.02)
    monkeypatch.setattr(INFORMER + "WORKED_SECONDS", 0.0)
    monkeypatch.setattr(INFORMER + "pause_after", lambda _error, _failures, *, growth: 0.02 * growth)


async def watching(proxy: FaultProxy) -> None:
    await wait_for(lambda: proxy.watches() == 1, what="a running watch")


@pytest.mark.usefixtures("quick")
@pytest.mark.kube("The store has every change also after a watch that broke, expired, fell silent or was rejected")
async def test_broken_watch_continues_without_a_list(
    follower: Follower, guest_proxy: FaultProxy, put_config_map: Put, delete_config_map: Delete
) -> None:
    put_config_map("cm", a="1")
    async with follower.synced():
        for number in (2, 3, 4):
            await watching(guest_proxy)
            guest_proxy.cut_watches()
            put_config_map("cm", a=str(number))
            await follower.shows("cm", {"a": str(number)})
        await watching(guest_proxy)
        guest_proxy.end_watches()
        delete_config_map("cm")
        await wait_for(lambda: follower.get("cm") is None)

    assert guest_proxy.count(watch=False) == 1
    assert guest_proxy.count(watch=True) == 5
    assert len(follower.changes) == 5


@pytest.mark.usefixtures("quick")
@pytest.mark.kube("The store has every change also after a watch that broke, expired, fell silent or was rejected")
async def test_rejected_watch_and_expired_version_lead_to_a_list_and_no_change_is_lost(
    follower: Follower, guest_proxy: FaultProxy, put_config_map: Put, delete_config_map: Delete
) -> None:
    for name in ("kept", "changed", "deleted"):
        put_config_map(name, a="1")
    guest_proxy.inject(Answer(400, "required revision is a future revision"), watch=True, times=1)
    async with follower.synced():
        await watching(guest_proxy)
        guest_proxy.silence_watches()
        put_config_map("changed", a="2")
        delete_config_map("deleted")
        put_config_map("new", a="1")
        follower.changes.clear()

        guest_proxy.expire_watches()

        await wait_for(lambda: len(follower.changes) == 3)
        assert sorted(follower.changes) == [
            ("changed", {"a": "1"}, {"a": "2"}),
            ("deleted", {"a": "1"}, None),
            ("new", None, {"a": "1"}),
        ]
    assert guest_proxy.count(watch=False) == 3
    assert follower.states == ["synced", "BadRequest", "synced"]


@pytest.mark.usefixtures("quick")
@pytest.mark.kube("The store has every change also after a watch that broke, expired, fell silent or was rejected")
async def test_silent_watch_is_replaced(
    follower: Follower, guest_proxy: FaultProxy, put_config_map: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(INFORMER + "SILENCE_SECONDS", 0.3)
    async with follower.synced():
        await watching(guest_proxy)
        guest_proxy.silence_watches()
        put_config_map("cm", a="1")

        await follower.saw(("cm", None, {"a": "1"}))

    assert follower.states[:3] == ["synced", "WatchSilent", "synced"]


@pytest.mark.usefixtures("quick")
async def test_forbidden_watch_is_replaced_by_polling_with_one_log_line_until_it_is_granted(
    follower: Follower, guest_proxy: FaultProxy, put_config_map: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(INFORMER + "POLL_SECONDS", 0.02)
    rule = guest_proxy.inject(Answer(403, "no watch", "Forbidden"), watch=True)
    with capture_logs() as logs:
        async with follower.synced():
            await wait_for(lambda: rule.hits >= 3)
            put_config_map("cm", a="1")
            await follower.saw(("cm", None, {"a": "1"}))
            assert follower.informer.problem is None
            guest_proxy.heal()
            await watching(guest_proxy)
            lists = guest_proxy.count(watch=False)
            put_config_map("cm", a="2")

            await follower.saw(("cm", None, {"a": "1"}), ("cm", {"a": "1"}, {"a": "2"}))
    assert guest_proxy.count(watch=False) == lists
    assert [entry["event"] for entry in logs].count("watch forbidden") == 1


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("answer", "problem"),
    [(Answer(401, "Unauthorized"), Unauthorized), (Answer(403, "Forbidden"), Forbidden), (None, ConnectionRefused)],
    ids=["401", "403", "down"],
)
@pytest.mark.kube(
    "No error ends an informer: the store keeps its objects, and ``problem`` says why it may not be current"
)
async def test_problem_at_the_start_is_reported_until_it_ends(
    follower: Follower, guest_proxy: FaultProxy, answer: Answer | None, problem: type[Exception], put_config_map: Put
) -> None:
    put_config_map("cm", a="1")
    if answer is None:
        await guest_proxy.down()
    else:
        guest_proxy.inject(answer)
    with capture_logs() as logs:
        async with follower.running():
            await wait_for(lambda: isinstance(follower.informer.problem, problem))
            assert not follower.informer.synced
            guest_proxy.heal()
            await guest_proxy.up()

            await follower.saw(("cm", None, {"a": "1"}))
            assert follower.informer.problem is None
            # The state follows the complete list.
            await wait_for(lambda: "synced" in follower.states)

    assert follower.states == [problem.__name__, "", "synced"]
    assert [entry["event"] for entry in logs if entry["log_level"] != "debug"] == [
        "list or watch failed",
        "list and watch recovered",
    ]


@pytest.mark.usefixtures("quick")
@pytest.mark.kube("A server that was restored from a backup replaces the store, although its versions are older")
async def test_server_with_older_versions_replaces_the_cache(
    client: ApiClient, guest: ControlPlane, harvester: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the restore of a backup: the version that was followed is from the future."""
    monkeypatch.setattr(INFORMER + "SILENCE_SECONDS", 0.5)
    newer, older = sorted((guest, harvester), key=latest_version, reverse=True)
    credentials = [administrator(plane, tmp_path / plane.name) for plane in (newer, older)]
    for plane in (newer, older):
        plane.apply(config_map(f"only-{plane.name}"))
    for number in range(max(0, latest_version(older) + 10 - latest_version(newer))):
        newer.apply(config_map(f"filler-{number}"))
    await client.use(credentials[0])
    informer = Informer(client, CONFIG_MAPS, namespace="default")
    async with running(informer.run()):
        await wait_for(lambda: informer.get(f"default/only-{newer.name}"))
        await client.use(credentials[1])

        await wait_for(lambda: informer.get(f"default/only-{older.name}"))
        assert informer.get(f"default/only-{newer.name}") is None


def administrator(plane: ControlPlane, path: Path) -> Credentials:
    bind(plane, "cluster-admin", account=("default", "test-rewind"))
    kubeconfig = plane.kubeconfig_for_service_account("default", "test-rewind", context_namespace="default", path=path)
    return load_credentials(kubeconfig)


def config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}


def latest_version(plane: ControlPlane) -> int:
    return int(plane.admin.request("GET", "/api/v1/configmaps")["metadata"]["resourceVersion"])


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
async def test_cache_is_current_after_a_restart_of_the_server(
    follower: Follower, guest: ControlPlane, client: ApiClient, guest_proxy: FaultProxy, put_config_map: Put
) -> None:
    put_config_map("cm", a="1")
    async with follower.synced():
        await watching(guest_proxy)
        guest.stop_apiserver()
        await wait_for(lambda: isinstance(follower.informer.problem, Unreachable))
        guest.start_apiserver()
        put_config_map("cm", a="2")

        await follower.shows("cm", {"a": "2"})
        await wait_for(lambda: follower.informer.problem is None)
    with pytest.raises(Gone, match="too old resource version"):
        await anext_event(client)


async def anext_event(client: ApiClient) -> None:
    """Watch from a version that a server which has just started cannot have."""
    async for event in client.watch(CONFIG_MAPS, params={"resourceVersion": "1"}, silence=5):
        assert event.object is None
