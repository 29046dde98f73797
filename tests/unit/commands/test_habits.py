"""What operators expect of ``status``: one namespace, all Services, slow servers, and a sign of life."""

from harvester_ccm.commands.clusters import SLOW_SECONDS, TimedClient
from harvester_ccm.kube.credentials import Credentials
from harvester_ccm.kube.tokens import TokenSource
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Runner
from tests.unit.commands.test_status import balancer


def test_namespace_limits_the_services(run: Runner, serve: ClusterServer) -> None:
    orphan = balancer(of="gone/web", uid="9", address="10.0.0.8")
    documents = [objects.service(), objects.service("x", uid="2", namespace="other"), orphan, objects.node()]
    flags = serve(objects.home(), objects.lease(), *documents)
    document = run("status", "-n", "other", "-o", "json", *flags).document
    assert document["services"] == {"Pending": 1}
    assert sorted(one["object"] for one in document["problems"]) == ["Node w1", "Service other/x"]
    everything = run("status", "-o", "json", *flags).document
    assert len(everything["problems"]) == 4
    assert run("status", "-A", "-n", "other", "-o", "json", *flags).document["problems"] == everything["problems"]


def test_latency_is_that_of_the_slowest_answer_to_a_read() -> None:
    client = TimedClient(Credentials("https://127.0.0.1:1", "", None, TokenSource(None)), cluster="harvester")
    for method, status, seconds in (("GET", 200, 1.0), ("GET", 200, 0.5), ("GET", 0, 9.0), ("POST", 201, 9.0)):
        client.note("harvester", method, "/", status, seconds)
    assert (client.seconds, client.is_slow) == (1.0, False)
    client.note("harvester", "GET", "/", 403, SLOW_SECONDS)
    assert client.is_slow
