"""Servers that are unreachable or reject everything: each is reported once, with its name and the fix."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harvester_ccm.names import SERVICE_FINALIZER
from tests.support.loopback_api import LoopbackApi, two_clusters
from tests.support.offline import json_web_token
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import Runner

EXPIRED = json_web_token({"sub": "system:serviceaccount:vms:demo", "exp": 1700000000})
OWNER = "does not accept the token of ServiceAccount vms/demo in"
FIX = "generate_addon.sh demo vms against Harvester"
HINT = "hint: harvester-ccm preflight checks both clusters and prints the fix\n"
READERS = pytest.mark.parametrize("words", ["status", "explain svc/web -n shop", "explain node/w1"])


class Outage:
    """Both servers and the flags for them."""

    def __init__(self, directory: Path, guest: LoopbackApi, harvester: LoopbackApi, flags: list[str]) -> None:
        self.directory = directory
        self.guest = guest
        self.harvester = harvester
        self.flags = flags

    def expired(self, which: str) -> None:
        """Have the server reject an expired token."""
        (self.guest if which == "kubeconfig" else self.harvester).refusal = 401, "Unauthorized"
        file = self.directory / which
        file.write_text(file.read_text().replace("token-of-a-test", EXPIRED))

    def unreachable(self, which: str) -> None:
        """Have no server listen at the address."""
        file = self.directory / which
        url = (self.guest if which == "kubeconfig" else self.harvester).url
        file.write_text(file.read_text().replace(url, "http://127.0.0.1:9"))


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Outage]:
    """A guest cluster with one Service that has an address, two that wait, and an initialized Node."""
    known, harvester = clusters.guest(), clusters.harvester()
    served = objects.service("served", uid="served", address="10.0.0.7", finalizers=[SERVICE_FINALIZER])
    node = objects.node("w2", taints=[], providerID="harvester://uid-of-vm-w2")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.2"}]
    guest = LoopbackApi([*known.objects, served, node, objects.lease()], groups=known.groups)
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        yield Outage(tmp_path, guest, harvester, flags)


def test_status_reports_a_rejected_token_once(run: Runner, outage: Outage) -> None:
    outage.expired("cloud-config")
    result = run("status", *outage.flags)
    assert result.code == 1
    for text in (OWNER, FIX, "which expired on 2023-11-14 22:13 UTC (401)", "UNREADABLE"):
        assert result.out.count(text) == 1, result.out
    assert "Service shop/new and 1 more  Pending" in result.out
    assert result.out.count("Waits for Harvester, which cannot be used: see the problem of Harvester above\n") == 2
    # An initialized Node is ready, and so is a Service with an address.
    assert "Nodes:            1 Pending, 1 Ready\n" in result.out


def test_leader_is_unknown_without_permission_to_read_the_lease(run: Runner, outage: Outage) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
    outage.guest.refusals[f"GET {path}"] = 403, "leases is forbidden"
    result = run("status", *outage.flags)
    assert (result.code, "Leader:" in result.out, "LeaseNotReadable" in result.out) == (1, False, True)


def test_collection_that_may_not_be_read_leads_to_preflight(run: Runner, outage: Outage) -> None:
    outage.guest.refusals["GET /api/v1/namespaces/kube-system"] = 403, "namespaces is forbidden"
    note = "cannot read namespaces: namespaces is forbidden. preflight lists each missing permission with its effect"
    assert note in " ".join(run("status", *outage.flags).out.split())


def test_proxy_without_a_route_is_no_other_version(run: Runner, outage: Outage) -> None:
    path = f"/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{objects.VMS}/loadbalancers"
    outage.harvester.refusals[f"GET {path}"] = 404, "404 page not found"
    outage.harvester.groups = {**clusters.HARVESTER_GROUPS, "loadbalancer.harvesterhci.io": ["v1beta1"]}
    document = run("status", "-o", "json", *outage.flags).document
    assert document["harvester"]["problem"] == "404 page not found"


@pytest.mark.parametrize("name", ["web", "served"])
def test_explain_reports_a_rejected_token_once(run: Runner, outage: Outage, name: str) -> None:
    outage.expired("cloud-config")
    result = run("explain", f"svc/{name}", "-n", "shop", *outage.flags)
    assert (result.code, result.out.count(OWNER), result.out.count(FIX)) == (1, 1, 1)


def test_vm_of_an_unreachable_harvester_is_unknown(run: Runner, outage: Outage) -> None:
    outage.unreachable("cloud-config")
    result = run("explain", "node/w2", *outage.flags)
    assert (result.code, "nothing listens at its address" in result.out) == (1, True)
    assert "Next writes:" not in result.out


def test_load_balancer_of_an_unreachable_harvester_is_not_said_to_be_missing(run: Runner, outage: Outage) -> None:
    outage.unreachable("cloud-config")
    result = run("explain", "lb/x", *outage.flags)
    assert (result.code, "error: Harvester: http://127.0.0.1:9: " in result.err) == (1, True)


def test_command_that_gives_something_up_is_not_printed_without_its_text(run: Runner, outage: Outage) -> None:
    outage.guest.objects.append(
        objects.service("going", uid="going", deleted="2026-11-21T09:00:00Z", finalizers=[SERVICE_FINALIZER])
    )
    outage.unreachable("cloud-config")
    rows = run("status", "-o", "json", *outage.flags).document["problems"]
    assert [row["command"] for row in rows if row["object"] == "Service shop/going"] == [""]


@READERS
def test_two_unreachable_servers_are_both_reported(run: Runner, outage: Outage, words: str) -> None:
    outage.unreachable("cloud-config")
    outage.unreachable("kubeconfig")
    result = run(*words.split(), *outage.flags)
    assert (result.code, result.out) == (1, "")
    first, second, hint = result.err.splitlines(keepends=True)
    assert "error: guest cluster: http://127.0.0.1:9: " in first
    assert "error: Harvester: http://127.0.0.1:9: " in second
    assert hint == f"harvester-ccm: {HINT}"


@READERS
def test_rejected_token_of_the_guest_is_reported_with_its_fix(run: Runner, outage: Outage, words: str) -> None:
    outage.expired("kubeconfig")
    result = run(*words.split(), *outage.flags)
    assert (result.code, result.out) == (1, "")
    assert f"{outage.guest.url} {OWNER} {outage.directory / 'kubeconfig'}, which expired on" in result.err
    assert "Get a new kubeconfig of this cluster" in result.err
    assert EXPIRED not in result.err


@READERS
def test_services_that_cannot_be_listed(run: Runner, outage: Outage, words: str) -> None:
    outage.guest.refusals["GET /api/v1/services"] = 403, "services is forbidden"
    result = run(*words.split(), *outage.flags)
    assert (result.code, result.out) == (1, "")
    assert result.err == f"harvester-ccm: error: guest cluster: services is forbidden\nharvester-ccm: {HINT}"


def test_services_that_the_controller_cannot_list(run: Runner, outage: Outage) -> None:
    account = "system:serviceaccount:kube-system:harvester-cloud-provider"
    text = (
        f'services is forbidden: User "{account}" cannot list resource "services" in API group "" at the cluster scope'
    )
    outage.guest.refusals["GET /api/v1/services"] = 403, text
    result = run("status", *outage.flags)
    remedy = "ClusterRole and ClusterRoleBinding harvester-cloud-provider grant it: check that both exist"
    assert f"error: guest cluster: {text}. {remedy}" in result.err


def test_cleanup_reports_the_error_of_harvester(run: Runner, outage: Outage) -> None:
    words = "cleanup", "--cluster-name=gone", *outage.flags[1:]
    outage.harvester.refusal = 403, "loadbalancers is forbidden, Authorization: Bearer abc123def456"
    result = run(*words)
    assert (result.code, result.out) == (1, "")
    assert "error: Harvester: loadbalancers is forbidden, Authorization: Bearer [removed]\n" in result.err
    outage.expired("cloud-config")
    assert "The controller reloads it; a command takes it with --cloud-config." in run(*words).err


@READERS
def test_kubeconfig_of_a_harvester_ends_the_command(run: Runner, outage: Outage, words: str) -> None:
    outage.guest.groups = {**clusters.GUEST_GROUPS, **clusters.HARVESTER_GROUPS}
    result = run(*words.split(), *outage.flags)
    assert (result.code, result.out) == (2, "")
    assert f"the kubeconfig {outage.directory / 'kubeconfig'} leads to a Harvester ({outage.guest.url})" in result.err
    # Only the cloud-config has an exit code of its own.
    assert "error: guest cluster: /none: " in run(*words.split(), *outage.flags, "--kubeconfig=/none").err


def test_preflight_reports_the_kubeconfig_of_a_harvester(run: Runner, outage: Outage) -> None:
    outage.guest.groups = {**clusters.GUEST_GROUPS, **clusters.HARVESTER_GROUPS}
    result = run("preflight", "-o", "json", *outage.flags)
    failed = [one for one in result.document["checks"] if one["result"] == "failed"]
    assert [(one["where"], one["check"]) for one in failed] == [("guest", "API versions")]
    assert failed[0]["fix"].startswith("Set --kubeconfig to a kubeconfig of the guest cluster")
