"""A server that is away or refuses everything: told once, with whose it is, and never as if nothing were there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harvester_ccm.names import SERVICE_FINALIZER
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import Runner
from tests.worlds.loopback_api import LoopbackApi, two_clusters
from tests.worlds.offline import json_web_token

EXPIRED = json_web_token({"sub": "system:serviceaccount:vms:demo", "exp": 1700000000})
WHOSE = "does not accept the token of ServiceAccount vms/demo in"
REMEDY = "generate_addon.sh demo vms, run against Harvester"


class Away:
    """Both servers and the flags for them."""

    def __init__(self, directory: Path, guest: LoopbackApi, harvester: LoopbackApi, flags: list[str]) -> None:
        self.directory = directory
        self.guest = guest
        self.harvester = harvester
        self.flags = flags

    def expired(self, which: str) -> None:
        """Have a token refused that has expired."""
        (self.guest if which == "kubeconfig" else self.harvester).refusal = 401, "Unauthorized"
        file = self.directory / which
        file.write_text(file.read_text().replace("token-of-a-test", EXPIRED))

    def unreachable(self, which: str) -> None:
        """Have nobody listen at the address of a server."""
        file = self.directory / which
        url = (self.guest if which == "kubeconfig" else self.harvester).url
        file.write_text(file.read_text().replace(url, "http://127.0.0.1:9"))


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Away]:
    """A guest with one Service that has an address, two that wait, and an initialised Node."""
    known, harvester = clusters.guest(), clusters.harvester()
    served = objects.service("served", uid="served", address="10.0.0.7", finalizers=[SERVICE_FINALIZER])
    node = objects.node("w2", taints=[], providerID="harvester://uid-of-vm-w2")
    node["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.2"}]
    guest = LoopbackApi([*known.objects, served, node], groups=known.groups)
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        yield Away(tmp_path, guest, harvester, flags)


def test_status_says_once_that_harvester_refuses_the_token(run: Runner, away: Away) -> None:
    away.expired("cloud-config")
    result = run("status", *away.flags)
    said = " ".join(result.out.split())
    assert result.code == 1
    assert said.count(WHOSE) == said.count(REMEDY) == said.count("which expired on 2023-11-14 22:13 UTC (401)") == 1
    assert "UNREADABLE" in said
    assert "Service shop/web and 1 more pending" in said
    assert said.count("see Harvester") == 2
    # An initialized Node is ready, and so is a Service with an address.
    assert "NODES (1 pending, 1 ready)" in said


def test_status_names_the_account_of_a_token_that_ends(run: Runner, away: Away) -> None:
    away.expired("cloud-config")
    away.harvester.refusal = None
    said = " ".join(run("status", *away.flags).out.split())
    assert said.count("The token for harvester expired on 2023-11-14.") == said.count(REMEDY) == 1


@pytest.mark.parametrize("name", ["web", "served"])
def test_explain_a_service_says_it_once(run: Runner, away: Away, name: str) -> None:
    away.expired("cloud-config")
    result = run("explain", f"svc/{name}", "-n", "shop", *away.flags)
    said = " ".join(result.out.split())
    assert result.code == 1
    assert said.count(WHOSE) == said.count(REMEDY) == 1


def test_load_balancers_that_may_not_be_listed_are_not_none(run: Runner, away: Away) -> None:
    path = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/vms/loadbalancers"
    away.harvester.refusals[f"GET {path}"] = 403, "loadbalancers is forbidden"
    result = run("explain", "svc/web", "-n", "shop", *away.flags)
    assert result.code == 1
    assert "loadbalancers is forbidden" in result.out


@pytest.mark.parametrize("name", ["w1", "w2"])
def test_a_vm_that_could_not_be_looked_for_is_not_none(run: Runner, away: Away, name: str) -> None:
    away.unreachable("cloud-config")
    result = run("explain", f"node/{name}", *away.flags)
    assert result.code == 1
    assert "Vm existence:     unknown" in result.out
    assert "nobody listens at its address" in " ".join(result.out.split())


def test_errors_say_whose_server_it_is(run: Runner, away: Away) -> None:
    away.guest.refusals["GET /api/v1/services"] = 503, "etcd is not there"
    result = run("status", *away.flags)
    assert (result.code, result.out) == (1, "")
    assert "error: guest cluster: etcd is not there\n" in result.err
    assert "hint: harvester-ccm preflight checks both clusters" in result.err
    cleanup = run("cleanup", "--cluster=demo", *away.flags[1:])
    assert "error:" not in cleanup.err
    away.harvester.refusal = 503, "starting"
    assert "error: Harvester: starting\n" in run("cleanup", "--cluster=demo", *away.flags[1:]).err


@pytest.mark.parametrize("words", ["status", "explain svc/web -n shop", "explain node/w1"])
def test_where_both_are_away_both_are_told(run: Runner, away: Away, words: str) -> None:
    away.unreachable("cloud-config")
    away.unreachable("kubeconfig")
    result = run(*words.split(), *away.flags)
    assert (result.code, result.out) == (1, "")
    first, second, hint = result.err.splitlines()
    assert "error: guest cluster: http://127.0.0.1:9: " in first
    assert "error: Harvester: http://127.0.0.1:9: " in second
    assert "preflight" in hint


@pytest.mark.parametrize("words", ["status", "explain svc/web -n shop", "explain node/w1"])
def test_a_refused_token_of_the_guest_is_told_with_its_remedy_and_what_else_is_away(
    run: Runner, away: Away, words: str
) -> None:
    away.expired("kubeconfig")
    away.unreachable("cloud-config")
    result = run(*words.split(), *away.flags)
    assert (result.code, result.out) == (1, "")
    assert "error: Harvester: http://127.0.0.1:9: " in result.err
    assert f"{away.guest.url} {WHOSE} {away.directory / 'kubeconfig'}, which expired on" in result.err
    assert "Get a new kubeconfig of this cluster" in result.err
    assert EXPIRED not in result.err


@pytest.mark.parametrize("words", ["status", "explain svc/web -n shop", "explain node/w1"])
def test_a_missing_permission_is_named(run: Runner, away: Away, words: str) -> None:
    away.guest.refusals["GET /api/v1/services"] = 403, "services is forbidden"
    result = run(*words.split(), *away.flags)
    assert (result.code, result.out) == (1, "")
    assert "error: guest cluster: services is forbidden\n" in result.err
    assert "hint: harvester-ccm preflight names all rights that are missing\n" in result.err


def test_who_tidies_up_after_a_cluster_is_told_what_that_needs(run: Runner, away: Away) -> None:
    words = "cleanup", "--cluster=gone", *away.flags[1:]
    away.harvester.refusal = 503, "starting"
    assert "hint: " not in run(*words).err
    away.harvester.refusal = 403, "loadbalancers is forbidden"
    result = run(*words)
    assert (result.code, result.out) == (1, "")
    hint = "the credential has to get, list, update and delete load balancers and list VMs"
    assert result.err.endswith(f"error: Harvester: loadbalancers is forbidden\nharvester-ccm: hint: {hint}\n")
    away.expired("cloud-config")
    assert "A command takes it with --cloud-config. The running program finds it" in run(*words).err
    result = run("cleanup", "--cluster=gone")
    assert "error: --cloud-config is required" in result.err
    assert "hint: " not in result.err


def test_who_has_no_cloud_config_is_told_where_none_is_needed(run: Runner, away: Away) -> None:
    result = run("status", away.flags[-1])
    assert (result.code, result.out) == (2, "")
    assert "error: --cloud-config is required" in result.err
    assert "kubectl -n kube-system exec deploy/harvester-cloud-provider -- harvester-ccm" in result.err
    other = run("status", "--nonsense", *away.flags)
    assert "hint" not in other.err
