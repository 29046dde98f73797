"""Leader election on a real Lease, against candidates of our own and against one that behaves like client-go."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from devenv.apiserver import ControlPlane
from devenv.faults import Answer, Lose
from devenv.proxy import FaultProxy
from devenv.restclient import Json
from harvester_ccm.commands.leader import read_lease
from harvester_ccm.commands.permissions import account_of
from harvester_ccm.flags import build_settings, parse_command_line
from harvester_ccm.kube.builtin import Lease
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.fence import WriteFence
from harvester_ccm.kube.holder import holder_mark, program_of_holder
from harvester_ccm.kube.lease import LeaderElector, LeaseLost, LeaseTimes
from tests.support.background import running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.apiserver

NAME = "cloud-controller-manager"
MARK = "example.org/holder"
TIMES = LeaseTimes(lease_duration=1.0, renew_deadline=0.6, retry_period=0.05)
PATIENT = LeaseTimes(lease_duration=60.0, renew_deadline=45.0, retry_period=TIMES.retry_period)
"""The Lease does not expire, not even on a busy machine."""


class Candidate(LeaderElector):
    """A candidate that records its events."""

    def __init__(self, client: ApiClient, namespace: str, identity: str = "us", times: LeaseTimes = TIMES) -> None:
        super().__init__(client, WriteFence(shut=True), namespace=namespace, name=NAME, identity=identity, times=times)
        self.annotations = {MARK: holder_mark("ccm/1.0", identity)}
        self.told: list[str] = []
        self.on_change = lambda verb, _lease: self.told.append(verb)


class LeaseObject:
    """The Lease as the administrator sees it."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._admin = plane.admin
        self._namespace = namespace
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.path = f"{self._collection}/{NAME}"

    def read(self) -> Json:
        spec: Json = self._admin.request("GET", self.path)["spec"]
        return spec

    def holder(self) -> str | None:
        """Return the holder: empty if it is released, None if the Lease does not exist."""
        found = self._admin.get_or_none(self.path)
        return None if found is None else str(found["spec"].get("holderIdentity", ""))

    def document(self) -> Json:
        return self._admin.request("GET", self.path)

    def program(self) -> str:
        return program_of_holder(msgspec.convert(self.document(), Lease), MARK)

    def change(self, **fields: object) -> None:
        self._admin.request("PATCH", self.path, body={"spec": fields})

    def annotate(self, value: str) -> None:
        """Change an annotation as another client."""
        self._admin.request("PATCH", self.path, body={"metadata": {"annotations": {"note": value}}})

    def delete(self) -> None:
        self._admin.request("DELETE", self.path)

    def hold_like_go(self, *, renewed: datetime | None = None, seconds: int = 1) -> None:
        """Create it as client-go does for another process that holds it."""
        stamp = (renewed or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": "go-host_7d0f",
            "leaseDurationSeconds": seconds,
            "acquireTime": stamp,
            "renewTime": stamp,
            "leaseTransitions": 3,
        }
        body = {"metadata": {"name": NAME, "labels": {"kept": "yes"}}, "spec": spec}
        self._admin.request("POST", self._collection, body=body)

    def renew_like_go(self) -> None:
        self.change(renewTime=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))


@pytest.fixture
def lease(guest: ControlPlane, namespace: str) -> LeaseObject:
    return LeaseObject(guest, namespace)


@pytest.fixture
def candidate(client: ApiClient, namespace: str) -> Candidate:
    return Candidate(client, namespace)


@pytest.fixture
def patient(client: ApiClient, namespace: str) -> Candidate:
    return Candidate(client, namespace, times=PATIENT)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.kube("The Lease has client-go's form, and needs only the verbs get, create and update")
async def test_absent_lease_is_created_as_client_go_does(
    candidate: Candidate, lease: LeaseObject, guest_proxy: FaultProxy
) -> None:
    await candidate.acquire()

    spec = lease.read()
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("us", 1, 0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])
    assert spec["acquireTime"] == spec["renewTime"]
    assert candidate.leading
    assert candidate.told == ["became leader"]
    assert [record.method for record in guest_proxy.requests] == ["GET", "POST"]


async def test_leader_renews_with_one_request_and_keeps_time_and_count(
    patient: Candidate, lease: LeaseObject, guest_proxy: FaultProxy
) -> None:
    await patient.acquire()
    before, renewed_at = lease.read(), patient.renewed_at
    guest_proxy.forget()
    async with running(patient.hold()):
        await wait_for(lambda: guest_proxy.count() >= 3)

    after = lease.read()
    assert {record.method for record in guest_proxy.requests} == {"PUT"}
    assert after["renewTime"] > before["renewTime"]
    assert patient.renewed_at > renewed_at
    unchanged = ("acquireTime", "leaseTransitions", "holderIdentity", "leaseDurationSeconds")
    assert [after[key] for key in unchanged] == [before[key] for key in unchanged]
    assert lease.program() == "ccm/1.0"


@pytest.mark.kube(
    "A Lease of another holder is taken only if it has not changed for its duration, whatever any clock says"
)
@pytest.mark.parametrize(("clock", "seconds"), [(timedelta(hours=-1), 1), (timedelta(), 2), (timedelta(hours=1), 1)])
async def test_lease_is_taken_when_it_is_unchanged_for_its_duration(
    candidate: Candidate, lease: LeaseObject, clock: timedelta, seconds: int
) -> None:
    lease.hold_like_go(renewed=datetime.now(UTC) + clock, seconds=seconds)
    started = now()

    await candidate.acquire()

    assert seconds <= now() - started < 30.0
    spec = lease.read()
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("us", 4)
    assert spec["acquireTime"] == spec["renewTime"]
    assert lease.document()["metadata"]["labels"] == {"kept": "yes"}
    assert lease.program() == "ccm/1.0"


@pytest.mark.kube(
    "A Lease of another holder is taken only if it has not changed for its duration, whatever any clock says"
)
async def test_lease_that_is_renewed_is_not_taken(candidate: Candidate, lease: LeaseObject) -> None:
    lease.hold_like_go(seconds=2)
    with capture_logs() as logs:
        async with running(candidate.acquire()) as acquiring:
            for number in range(8):
                lease.renew_like_go()
                await wait_for(lambda: candidate.holder == "go-host_7d0f")
                done, _ = await asyncio.wait([acquiring], timeout=0.4)
                assert not done, number
    assert not candidate.leading
    assert candidate.told == []
    assert [entry["holder"] for entry in logs if entry["event"] == "waiting for leadership"] == ["go-host_7d0f"]


async def test_changes_beside_the_specification_do_not_keep_a_lease(candidate: Candidate, lease: LeaseObject) -> None:
    lease.hold_like_go()
    async with asyncio.timeout(30), running(candidate.acquire()) as acquiring:
        while not acquiring.done():
            lease.annotate(str(now()))
            await asyncio.wait([acquiring], timeout=0.3)
    assert lease.holder() == "us"


async def test_released_lease_is_taken_at_once(client: ApiClient, namespace: str, lease: LeaseObject) -> None:
    slow = LeaseTimes(lease_duration=14.5, renew_deadline=10, retry_period=0.05)
    first, second = (Candidate(client, namespace, identity, slow) for identity in ("first", "second"))
    await first.acquire()
    async with running(second.acquire()) as acquiring:
        await wait_for(lambda: second.holder == "first")

        await first.release()

        assert not first.leading
        await asyncio.wait_for(asyncio.shield(acquiring), 10)
    assert first.told == ["became leader", "stopped leading"]
    spec = lease.read()
    assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == ("second", 1, 15)


@pytest.mark.kube("The Lease has client-go's form, and needs only the verbs get, create and update")
async def test_released_lease_looks_as_client_go_leaves_it(candidate: Candidate, lease: LeaseObject) -> None:
    await candidate.acquire()
    lease.annotate("kept")
    await candidate.release()

    document = lease.document()
    assert (document["spec"].get("holderIdentity", ""), document["spec"]["leaseDurationSeconds"]) == ("", 1)
    assert document["metadata"]["annotations"] == {"note": "kept", MARK: "ccm/1.0 us"}
    assert lease.program() == ""


async def test_command_finds_out_whether_the_lease_can_be_written(
    client: ApiClient, candidate: Candidate, namespace: str, lease: LeaseObject
) -> None:
    async def reason(where: str = namespace) -> str:
        flags = parse_command_line(["--cloud-config=/none", f"--leader-elect-resource-namespace={where}"])
        account = account_of(client, is_in_pod=False)
        _, lines = await read_lease(build_settings(flags, {}), client, account)
        return lines[0][1].reasons[0].reason

    assert await reason() == "NoLeader"
    assert lease.holder() is None
    assert await reason(f"{namespace}-none") == "LeaseNotWritable"
    await candidate.acquire()
    await candidate.release()
    before = lease.read()
    assert await reason() == "NoLeader"
    assert lease.read() == before


async def test_only_the_holder_releases_the_lease(
    candidate: Candidate, lease: LeaseObject, guest_proxy: FaultProxy
) -> None:
    await candidate.release()
    assert guest_proxy.count() == 0

    await candidate.acquire()
    lease.change(holderIdentity="thief")
    await candidate.release()
    assert lease.read()["holderIdentity"] == "thief"
    assert lease.program() == ""


async def test_lost_response_to_a_renewal_does_not_prevent_the_release(
    patient: Candidate, lease: LeaseObject, guest_proxy: FaultProxy
) -> None:
    await patient.acquire()
    rule = guest_proxy.inject(Lose(), method="PUT", times=1)
    async with running(patient.hold()):
        await wait_for(lambda: rule.hits)

    await patient.release()

    assert lease.read().get("holderIdentity", "") == ""


@pytest.mark.parametrize("there", [False, True])
async def test_lease_is_released_although_the_response_to_its_creation_was_lost(
    candidate: Candidate, lease: LeaseObject, guest_proxy: FaultProxy, there: bool
) -> None:
    if there:
        lease.hold_like_go()
        lease.change(holderIdentity="")
    rule = guest_proxy.inject(Lose(), method="PUT" if there else "POST", times=1)
    async with running(candidate.acquire()):
        await wait_for(lambda: rule.hits)
        await wait_for(lambda: lease.holder() == "us")
    assert not candidate.leading

    await candidate.release()

    assert lease.holder() == ""


async def test_leader_stops_at_the_renew_deadline(candidate: Candidate, guest_proxy: FaultProxy) -> None:
    await candidate.acquire()
    guest_proxy.inject(Answer(429, "busy", retry_after=60))

    async with running(candidate.hold(), until=LeaseLost) as holding:
        pass

    assert 0.6 <= now() - candidate.renewed_at < TIMES.lease_duration
    assert "the Lease could not be renewed for 0." in str(holding.exception())
    assert not candidate.leading
    assert candidate.told == ["became leader", "stopped leading"]


async def test_conflict_with_another_client_is_retried(
    patient: Candidate, lease: LeaseObject, guest_proxy: FaultProxy
) -> None:
    await patient.acquire()
    lease.annotate("by hand")
    async with running(patient.hold()):
        await wait_for(lambda: [r.status for r in guest_proxy.matching(method="PUT")][:2] == [409, 200])

    document = lease.document()
    assert document["metadata"]["annotations"]["note"] == "by hand"
    assert (document["spec"]["holderIdentity"], document["spec"]["leaseTransitions"]) == ("us", 0)


async def test_deleted_lease_is_created_again(patient: Candidate, lease: LeaseObject) -> None:
    await patient.acquire()
    lease.delete()
    async with running(patient.hold()):
        await wait_for(lambda: patient.told == ["became leader"] * 2)

    assert lease.read()["holderIdentity"] == "us"


@pytest.mark.kube("The Lease has client-go's form, and needs only the verbs get, create and update")
async def test_lease_needs_get_create_and_update_only(
    guest_kubeconfig: Path, guest_proxy: FaultProxy, tmp_path: Path
) -> None:
    """The published charts grant no patch, list or watch."""
    path = guest_proxy.kubeconfig(guest_kubeconfig, tmp_path / "kubeconfig")
    async with ApiClient(load_credentials(path), cluster="guest") as client:
        candidate = Candidate(client, "kube-system", times=PATIENT)
        await candidate.acquire()
        async with running(candidate.hold()):
            await wait_for(lambda: guest_proxy.count(method="PUT") >= 2)
        await candidate.release()

    assert {record.method for record in guest_proxy.requests} == {"GET", "POST", "PUT"}
    assert {record.query for record in guest_proxy.requests} == {""}
    assert {record.path.rpartition("/leases")[2] for record in guest_proxy.requests} == {"", f"/{NAME}"}
