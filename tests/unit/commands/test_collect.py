"""``collect``: what is in a bundle, what never is, and that ``explain -f`` says of it what it said of the clusters."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from harvester_ccm.cli import main
from harvester_ccm.commands.bundle import packed
from harvester_ccm.names import LB_OWNER, SERVICE_FINALIZER
from tests.unit.commands import clusters, objects
from tests.unit.commands.conftest import Json, Runner, listed
from tests.worlds.loopback_api import LoopbackApi, two_clusters

SECRET = "5up3r-s3cr3t-v4lu3"
JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ccm-1", "namespace": "kube-system"}}
LOG = f"INFO  started\nWARN  Authorization: Bearer {JWT} was sent\n"


def planted() -> tuple[LoopbackApi, LoopbackApi]:
    """Return both clusters with a secret wherever people put some."""
    guest, harvester = clusters.guest(), clusters.harvester()
    service, vm = guest.objects[0], harvester.objects[1]
    service["metadata"]["annotations"] |= {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": [{"value": SECRET}]}),
        "example.org/webhook": f"https://user:{SECRET}@hooks.example.org/",
    }
    service["metadata"]["managedFields"] = [{"manager": SECRET}]
    vm["metadata"]["annotations"] = {"note": SECRET}
    vm["spec"] = {
        "template": {"spec": {"volumes": [{"cloudInitNoCloud": {"userData": f"password: {SECRET}\ntoken: {JWT}"}}]}}
    }
    guest.objects[2]["metadata"]["annotations"] = {"etcd.example.org/password": SECRET}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "shop"},
        "involvedObject": {"kind": "Service", "namespace": "shop", "name": "web"},
        "type": "Warning",
        "reason": "AddressPending",
        "message": f"refused: Bearer {JWT}",
        "lastTimestamp": "2026-11-21T09:00:00Z",
    }
    guest.objects += [event, POD, {**event, "metadata": {"name": "f"}, "involvedObject": {"kind": "Secret"}}]
    guest.texts["/api/v1/namespaces/kube-system/pods/ccm-1/log"] = LOG
    return guest, harvester


@pytest.fixture
def flags(tmp_path: Path) -> Iterator[list[str]]:
    with two_clusters(*planted(), tmp_path, objects.VMS) as given:
        yield given


def files_of(bundle: Path) -> dict[str, str]:
    with tarfile.open(bundle) as archive:
        members = {one.name.removeprefix("harvester-ccm/"): archive.extractfile(one) for one in archive.getmembers()}
        return {name: file.read().decode() for name, file in members.items() if file}


def test_a_bundle_has_what_is_needed_and_no_secret(run: Runner, flags: list[str], tmp_path: Path) -> None:
    bundle = tmp_path / "case.tgz"
    result = run("collect", str(bundle), *flags)
    assert bundle.stat().st_mode & 0o777 == 0o600
    files = files_of(bundle)
    assert sorted(files) == [
        "README.txt", "events.json", "facts.json", "logs/ccm-1.txt", "objects.json", "preflight.json",
    ]  # fmt: skip
    for name, text in files.items():
        for secret in (SECRET, JWT, "token-of-a-test"):
            assert secret not in text, name
    assert (result.code, result.out) == (1, "")
    assert "not in it: Lease: not found" in result.err
    assert [one["about"] for one in json.loads(files["events.json"])["guest"]] == ["Service/shop/web"]
    assert "INFO  started" in files["logs/ccm-1.txt"]
    assert json.loads(files["facts.json"])["flags"]["cluster-name"] == "demo"
    assert {one["check"] for one in json.loads(files["preflight.json"])["checks"]} >= {"webhook", "VMs", "leases"}


@pytest.mark.parametrize("words", [("svc/web", "-n", "shop"), ("svc/new", "-n", "shop"), ("node/w1",)])
def test_explain_says_of_a_bundle_what_it_said_of_the_clusters(
    run: Runner, flags: list[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    bundle = str(tmp_path / "case.tgz")
    run("collect", bundle, *flags)
    live = run("explain", *words, "-o", "json", *flags).document
    replayed = run("explain", *words, "-f", bundle, "-o", "json").document
    for volatile in ("waited", "admission"):
        live.pop(volatile, None)
        replayed.pop(volatile, None)
    assert without_assumptions(replayed) == without_assumptions(live)


def test_a_bundle_is_replayed_where_its_clusters_cannot_be_reached(
    run: Runner, flags: list[str], tmp_path: Path
) -> None:
    bundle = str(tmp_path / "case.tgz")
    # As with KUBECONFIG, which no flag says and another machine has not.
    *rest, kubeconfig = flags
    collected = main(
        ["harvester-ccm", "collect", bundle, *rest, "--context=x", "--cloud-config-context=x"],
        {"KUBECONFIG": kubeconfig.removeprefix("--kubeconfig=")},
    )
    assert collected == 1
    assert json.loads(files_of(Path(bundle))["facts.json"])["flags"]["context"] == "x"
    result = run("explain", "svc/web", "-n", "shop", "-f", bundle, "-o", "text")
    assert "error" not in result.err
    assert result.code == 1
    assert "demo-shop-web-" in result.out


def test_a_bundle_is_judged_by_the_time_of_its_collection(run: Runner, tmp_path: Path) -> None:
    taken = "2026-11-21T08:00:05+00:00"
    facts = {"version": "1", "taken": taken, "flags": {"cluster-name": "demo"}, "namespace": objects.VMS}
    # New for five seconds: nobody is told yet that Harvester does not look at its load balancer.
    silent = objects.balancer(annotations={LB_OWNER: objects.CLUSTER_UID})
    silent["metadata"]["creationTimestamp"] = objects.CREATED
    service = objects.service(finalizers=[SERVICE_FINALIZER])
    bundle = tmp_path / "case.tgz"
    files = {"objects.json": json.dumps(listed([objects.home(), service, silent])), "facts.json": json.dumps(facts)}
    bundle.write_bytes(packed(files))
    status = run("status", "-f", str(bundle), "-o", "json").document
    explained = run("explain", "-f", str(bundle), "-o", "json").document["services"]
    named = run("explain", "svc/web", "-f", str(bundle), "-n", "shop").document
    assert status["observed"] == "2026-11-21T08:00:05Z"
    assert status["services"][0]["warnings"] == []
    assert [one["waited"] for one in (*explained, named)] == [5.0, 5.0]


def without_assumptions(document: Json) -> Json:
    """Return the explanation without resource versions, of which a server in memory has none that matter."""
    return {key: value for key, value in document.items() if key != "assumptions"}


def test_what_could_not_be_read_is_not_none_in_a_replay(run: Runner, tmp_path: Path) -> None:
    guest, harvester = clusters.guest(), clusters.harvester()
    path = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/vms/loadbalancers"
    harvester.refusals[f"GET {path}"] = 403, "loadbalancers is forbidden"
    bundle = str(tmp_path / "case.tgz")
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        result = run("collect", bundle, *flags)
    assert "not in it: loadbalancers: loadbalancers is forbidden" in result.err
    text = run("explain", "svc/web", "-f", bundle, "-o", "text").out
    assert "not known, because Harvester could not be read" in text
    assert "loadbalancers is forbidden" in text


@pytest.mark.parametrize(
    ("where", "path", "title"),
    [
        ("harvester", "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/vms/loadbalancers", "load balancers"),
        ("harvester", "/apis/kubevirt.io/v1/namespaces/vms/virtualmachines", "VMs"),
        ("harvester", "/apis/kubevirt.io/v1/namespaces/vms/virtualmachineinstances", "VM instances"),
        ("guest", "/api/v1/services", "Services"),
        ("guest", "/api/v1/nodes", "Nodes"),
    ],
)
def test_a_bundle_that_lacks_what_counts_is_not_well(
    run: Runner, tmp_path: Path, where: str, path: str, title: str
) -> None:
    guest, harvester = LoopbackApi([], groups=clusters.GUEST_GROUPS), LoopbackApi([], groups=clusters.HARVESTER_GROUPS)
    (guest if where == "guest" else harvester).refusals[f"GET {path}"] = 403, "is forbidden"
    bundle = str(tmp_path / "case.tgz")
    with two_clusters(guest, harvester, tmp_path, objects.VMS) as flags:
        run("collect", bundle, *flags)
    for command in ("status", "explain"):
        result = run(command, "-f", bundle)
        assert "well" not in result.out, command
        assert title in result.out, command
        assert "could not be read: is forbidden" in result.out, command
        assert (result.code, result.err) == (1, ""), command
        document = run(command, "-f", bundle, "-o", "json").document
        assert [title in one for one in document["problems"]] == [True], command


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"\x1f\x8bnonsense", "no bundle of 'harvester-ccm collect'"), (b"", "there is no Service in the files")],
)
def test_other_files(run: Runner, tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "case.tgz"
    file.write_bytes(content)
    result = run("explain", "svc/web", "-f", str(file), "--cluster-name=demo")
    assert result.code == 2
    assert problem in result.err or "is not in the files" in result.err


def test_an_archive_without_our_files_is_none(run: Runner, tmp_path: Path) -> None:
    file = tmp_path / "other.tgz"
    with tarfile.open(file, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("x"), io.BytesIO())
    assert "no bundle of 'harvester-ccm collect' (KeyError)" in run("explain", "svc/web", "-f", str(file)).err
