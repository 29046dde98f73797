"""What ``status``, ``explain`` and ``preflight`` say about addresses that no node announces."""

from typing import Any, Final

import pytest

from harvester_ccm.commands.explain import ANNOUNCER_OTHER
from harvester_ccm.names import (
    DHCP_ADDRESS,
    IPAM,
    KUBE_VIP_ADDRESSES,
    KUBE_VIP_HOST,
    KUBE_VIP_IGNORE,
    LB_OWNER,
    SERVICE_FINALIZER,
    WORKLOAD_TYPE,
)
from harvester_ccm.plan.service.announcing.record import Step
from tests.unit.commands import objects
from tests.unit.commands.conftest import ClusterServer, Json, Run, Runner

ADDRESS: Final = "10.0.0.7"


def published(
    name: str = "web",
    uid: str = objects.UID,
    node: str = "",
    address: str = ADDRESS,
    *,
    answers: bool = False,
    **spec: Any,
) -> Json:
    """Return a Service with an address, and the node that kube-vip has noted.

    kube-vip ``answers`` if it has noted an address again before.
    """
    notes = {KUBE_VIP_HOST: node} if node else {}
    record = objects.record(Step.PUBLISHED, address, uid, answers=answers, again=answers, was_respelled=answers)
    annotations = {KUBE_VIP_ADDRESSES: address, **notes, **record}
    return objects.service(
        name, uid=uid, address=address, finalizers=[SERVICE_FINALIZER], annotations=annotations, **spec
    )


def balancer(name: str = "web", uid: str = objects.UID, address: str = ADDRESS) -> Json:
    """Return the load balancer of a Service, which was created long ago."""
    mark = {LB_OWNER: objects.CLUSTER_UID}
    document = objects.balancer(address=address, annotations=mark, of=f"shop/{name}", uid=uid)
    document["metadata"]["creationTimestamp"] = objects.CREATED
    return document


def vm_balancer() -> Json:
    """Return a VM load balancer, whose address Harvester announces."""
    document = balancer()
    document["spec"]["workloadType"] = "vm"
    document["status"]["address"] = ADDRESS
    return document


def announced_by(run: Runner, flags: list[str]) -> tuple[str, str, int]:
    """Return what ``explain`` prints about the announcement, its notes, and its exit code."""
    result = run("explain", "svc/web", "-n", "shop", "-o", "json", *flags)
    assert result.err == ""
    return str(result.document["announcedBy"]), " ".join(result.document["notes"]), result.code


def status(run: Runner, flags: list[str]) -> Run:
    return run("status", "-o", "json", *flags)


OTHER_SERVICE: Final = [
    published("api", "api-uid", node="w1", address="10.0.0.8"),
    objects.endpoint_slice("api"),
    balancer("api", "api-uid", "10.0.0.8"),
]
CASES: dict[str, tuple[list[Json], str, str, str]] = {
    "noted": ([published(node="w1")], "w1", "", ""),
    "nothing noted anywhere": (
        [published(), objects.endpoint_slice()],
        "",
        "",
        "--announcer=other",
    ),
    "no endpoint": (
        [published(), *OTHER_SERVICE],
        "",
        "",
        "Service shop/web: The Service has no endpoint",
    ),
    "not announced": (
        [published(answers=True), objects.endpoint_slice(), *OTHER_SERVICE],
        "",
        "Check that the kube-vip Pods run",
        "",
    ),
}


@pytest.mark.parametrize(("documents", "announcer", "problem", "note"), CASES.values(), ids=CASES.keys())
def test_announcement(
    run: Runner, serve: ClusterServer, documents: list[Json], announcer: str, problem: str, note: str
) -> None:
    flags = serve(objects.home(), objects.lease(), balancer(), *documents)
    text, explained, code = announced_by(run, flags)
    assert (text, code) == (announcer, bool(problem))
    assert note.rpartition(": ")[2] in explained
    result = status(run, flags)
    problems = [f"{one['object']} {one['reason']} {one['message']}" for one in result.document["problems"]]
    assert [line.partition(" No ")[0] for line in problems] == ["Service shop/web AddressNotAnnounced"] * bool(problem)
    assert all(problem in line for line in problems)
    notes = result.document["notes"]
    assert (len(notes), note in "".join(notes)) == (bool(note), True)


def test_endpoints_that_cannot_be_read_are_no_endpoints(run: Runner, serve: ClusterServer) -> None:
    refused = {"GET /apis/discovery.k8s.io/v1/endpointslices": (403, "no list")}
    notes = announced_by(run, serve(objects.home(), published(), balancer(), refused=refused))[1]
    assert "because this controller cannot read EndpointSlices" in notes
    undecodable = {**objects.endpoint_slice("api"), "endpoints": "none"}
    notes = announced_by(run, serve(objects.home(), published(), balancer(), undecodable))[1]
    assert "because this controller cannot read EndpointSlices" in notes


STALE_NOTES: Final[dict[str, tuple[Json, Json, str]]] = {
    "the next address is missing": (
        published(node="w1", address=""),
        objects.balancer(annotations={LB_OWNER: objects.CLUSTER_UID}),
        "",
    ),
    "a lease is awaited": (
        objects.service(
            finalizers=[SERVICE_FINALIZER],
            annotations={IPAM: "dhcp", KUBE_VIP_ADDRESSES: DHCP_ADDRESS, KUBE_VIP_HOST: "w1"},
        ),
        objects.balancer(address=DHCP_ADDRESS, annotations={LB_OWNER: objects.CLUSTER_UID}, ipam="dhcp"),
        "",
    ),
    "Harvester announces it by now": (
        objects.service(
            address=ADDRESS,
            finalizers=[SERVICE_FINALIZER],
            annotations={WORKLOAD_TYPE: "vm", KUBE_VIP_ADDRESSES: "", KUBE_VIP_IGNORE: "true", KUBE_VIP_HOST: "w1"},
        ),
        vm_balancer(),
        "Harvester",
    ),
    "its type is ClusterIP by now": (
        objects.service(annotations={KUBE_VIP_HOST: "w1"}, type="ClusterIP"),
        objects.home(),
        "",
    ),
}


@pytest.mark.parametrize(("service", "found", "announcer"), STALE_NOTES.values(), ids=STALE_NOTES.keys())
def test_node_that_kube_vip_noted_for_an_earlier_address_is_not_named(
    run: Runner, serve: ClusterServer, service: Json, found: Json, announcer: str
) -> None:
    """kube-vip never removes its note."""
    flags = serve(objects.home(), objects.lease(), service, found)
    assert announced_by(run, flags)[0] == announcer


@pytest.mark.parametrize(
    ("node", "last_line"), [("", "No problem found; see the notes."), ("w1", "All is well.")], ids=["unknown", "noted"]
)
def test_status_does_not_say_that_all_is_well_while_that_is_not_known(
    run: Runner, serve: ClusterServer, node: str, last_line: str
) -> None:
    flags = serve(objects.home(), objects.lease(), published(node=node), balancer(), objects.endpoint_slice())
    result = run("status", *flags)
    assert (result.out.splitlines()[-1], result.code) == (last_line, 0)


def test_services_with_the_same_explanation_share_a_note(run: Runner, serve: ClusterServer) -> None:
    more = [published("new", "new-uid", address="10.0.0.9"), balancer("new", "new-uid", "10.0.0.9")]
    flags = serve(objects.home(), objects.lease(), published(), balancer(), *more, *OTHER_SERVICE)
    result = status(run, flags)
    (note,) = result.document["notes"]
    assert note.startswith("Service shop/new, shop/web: The Service has no endpoint")
    assert (result.code, result.document["services"]) == (0, {"Ready": 3})


@pytest.mark.parametrize("node", ["", "w1"], ids=["no note", "a note from before"])
def test_other_announcer_is_named(run: Runner, serve: ClusterServer, node: str) -> None:
    flags = [*serve(objects.home(), objects.lease(), published(node=node), balancer()), "--announcer=other"]
    assert announced_by(run, flags) == (ANNOUNCER_OTHER, "", 0)
    assert status(run, flags).document["notes"] == []
