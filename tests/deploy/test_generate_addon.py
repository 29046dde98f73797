"""``scripts/generate_addon.sh`` with a real kubectl against a cluster that really issues tokens."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.restclient import Json, RefusedError, RestClient, wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "generate_addon.sh"
SHELL = shutil.which("dash") or "sh"
"""The shell that is /bin/sh on Debian and Ubuntu."""
CONFIG_HEADER = "########## cloud config ############\n"
RKE1_HEADER = "\n########## RKE1: part of cluster.yml ############\n"
CLOUD_INIT_HEADER = "\n########## cloud-init user data ############\n"
PATHS = ["/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"]
TOOLS = ("base64", "cat", "date", "mkdir", "mktemp", "mv", "rm", "sleep", "tr")
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
HAS_DONE = 0
IS_REFUSED = 1


class Addon:
    """Runs the script as its users do, with nothing on PATH but what it says it needs (so no jq)."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane = plane
        self.temporary = directory / "tmp"
        self.bin = directory / "bin"
        self.temporary.mkdir()
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.bin / tool).symlink_to(found)
        (self.bin / "kubectl").symlink_to(require("kubectl")["kubectl"])

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.temporary.parent),
            "TMPDIR": str(self.temporary),
            "KUBECONFIG": str(self.plane.admin_kubeconfig),
            # What the server has is asked for once, and not by every test.
            "KUBECACHEDIR": str(self.plane.directory / "kubectl"),
            **{name: os.environ[name] for name in ("GOGC",) if name in os.environ},
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [SHELL, SCRIPT, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, expect: int = HAS_DONE) -> tuple[str, str]:
        process = self.start(*arguments)
        output, messages = process.communicate(timeout=200)
        assert process.returncode == expect, messages
        assert list(self.temporary.iterdir()) == []
        return output, messages

    @property
    def cluster(self) -> str:
        """What the cluster is called where the script reads it."""
        name: str = yaml.safe_load(self.plane.admin_kubeconfig.read_text())["clusters"][0]["name"]
        return name

    def credential(self, *arguments: str) -> Json:
        """The kubeconfig of a run."""
        config, _ = sections(self.run(*arguments)[0])
        return config

    def token(self, account: str, namespace: str) -> str:
        """The token that the account has; one that has none gets it from a run."""
        secret = self.plane.admin.get_or_none(f"/api/v1/namespaces/{namespace}/secrets/{account}-token") or {}
        present = secret.get("data", {}).get("token")
        return base64.b64decode(present).decode() if present else token_in(self.credential(account, namespace))


def token_in(config: Json) -> str:
    token: str = config["users"][0]["user"]["token"]
    return token


@pytest.fixture
def addon(harvester: ControlPlane, tmp_path: Path) -> Addon:
    return Addon(harvester, tmp_path)


def sections(output: str) -> tuple[Json, Json]:
    assert output.startswith(CONFIG_HEADER)
    config, cloud_init = output.removeprefix(CONFIG_HEADER).split(CLOUD_INIT_HEADER)
    return yaml.safe_load(config), yaml.safe_load(cloud_init)


def client_of(config: Mapping[str, object], directory: Path) -> RestClient:
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(dict(config)))
    return RestClient.from_kubeconfig(file)


def status_of(client: RestClient, namespace: str) -> int:
    try:
        client.request("GET", BALANCERS.format(namespace))
    except RefusedError as refusal:
        return refusal.status
    return 200


def test_shellcheck_finds_nothing() -> None:
    program = Path(sys.executable).parent / "shellcheck"
    scripts = [SCRIPT, *(ROOT / "scripts").glob("*.sh")]
    done = subprocess.run([program, *scripts], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("arguments", [[], ["only-account"], ["account", ""]])
def test_missing_argument_prints_description_and_usage(arguments: list[str]) -> None:
    done = subprocess.run([SHELL, SCRIPT, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == IS_REFUSED
    assert len(done.stdout.splitlines()) == 2
    assert "<serviceAccount> <namespace>" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Prod_1", "vms"], 'service account "Prod_1"'),
        (["prod", "vms/x"], 'namespace "vms/x"'),
        (["prod", "vms", "more"], "expected two arguments, got 3"),
        (["--server", "10.0.0.1", "prod", "vms"], '--server "10.0.0.1"'),
        (["--server", "https:///x", "prod", "vms"], '--server "https:///x"'),
        (["--timeout", "soon", "prod", "vms"], '--timeout "soon"'),
        (["--rke1", "nowhere.yaml", "prod", "vms"], '--rke1 "nowhere.yaml" cannot be read'),
        (["prod.", "vms"], 'service account "prod."'),
        (["pro-.d", "vms"], 'service account "pro-.d"'),
        (["prod", "v.ms"], 'namespace "v.ms"'),
        (["prod", "v" * 64], f'namespace "{"v" * 64}"'),
        (["--sever", "prod", "vms"], "unknown option --sever"),
        (["prod", "vms", "--server"], "option --server needs a value"),
    ],
)
def test_wrong_argument_is_named(arguments: list[str], message: str) -> None:
    done = subprocess.run([SHELL, SCRIPT, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == IS_REFUSED
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.apiserver
def test_result_is_a_kubeconfig_and_cloud_init_data_for_both_paths(addon: Addon, tmp_path: Path) -> None:
    output, messages = addon.run("prod", "tenant-a")
    config, cloud_init = sections(output)
    context = config["contexts"][0]
    assert config["clusters"][0]["name"] == context["context"]["cluster"] == addon.cluster
    assert config["current-context"] == context["name"] == f"prod-tenant-a-{addon.cluster}"
    assert context["context"]["namespace"] == "tenant-a"
    assert config["clusters"][0]["cluster"]["server"] == addon.plane.url
    entries = cloud_init["write_files"]
    assert [entry["path"] for entry in entries] == PATHS
    for entry in entries:
        assert yaml.safe_load(base64.b64decode(entry["content"])) == config
        assert entry["encoding"] == "b64"
        assert entry["owner"] == "root:root"
        assert entry["permissions"] == "0600"
    assert list(config) == [
        "apiVersion",
        "clusters",
        "contexts",
        "current-context",
        "kind",
        "preferences",
        "users",
    ]
    assert "Verified at" in messages
    assert "nodes need another address" in messages
    assert token_in(config) not in messages
    client = client_of(config, tmp_path)
    assert (status_of(client, "tenant-a"), status_of(client, "tenant-b")) == (200, 403)


@pytest.mark.apiserver
def test_second_run_and_piped_script_give_the_same(addon: Addon) -> None:
    first, _ = addon.run("again", "tenant-a")
    assert addon.run("again", "tenant-a")[0] == first
    for shell in (SHELL, shutil.which("bash")):
        assert shell is not None
        piped = subprocess.run(
            [shell, "-s", "again", "tenant-a"],
            check=True,
            env=addon.environment,
            input=SCRIPT.read_text(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert piped.stdout == first


def test_script_is_a_file_where_documents_say_that_it_is() -> None:
    """Of a link, a server of raw files shows where it leads to."""
    assert not SCRIPT.is_symlink()
    assert (ROOT / "scripts" / "generate_addon.sh").samefile(SCRIPT)


@pytest.mark.apiserver
def test_part_for_rke1_is_the_credential_and_the_manifest(addon: Addon, tmp_path: Path) -> None:
    manifest = ROOT / "deploy" / "manifests" / "rke1.yaml"
    output, _ = addon.run("--rke1", str(manifest), "old-one", "tenant-a")
    rest, part = output.split(RKE1_HEADER)
    config, _ = sections(rest)
    cluster = yaml.safe_load(part)
    assert cluster["cloud_provider"] == {"name": "external"}
    secret, *objects = yaml.safe_load_all(cluster["addons"])
    assert (secret["kind"], secret["metadata"]) == ("Secret", {"name": "cloud-config", "namespace": "kube-system"})
    assert yaml.safe_load(secret["stringData"]["cloud-config"]) == config
    assert objects == list(yaml.safe_load_all(manifest.read_text().replace("CLUSTER-NAME", "old-one")))

    addon.run("-o", str(tmp_path / "out"), "--rke1", str(manifest), "old-one", "tenant-a")
    written = tmp_path / "out" / "rke1-addons.yaml"
    assert written.read_text() == part
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.apiserver
@pytest.mark.parametrize(("account", "namespace"), [("2024", "007"), ("on", "null"), ("1e3", "2024-11-21")])
def test_names_that_yaml_takes_for_something_else(addon: Addon, tmp_path: Path, account: str, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    addon.plane.admin.request("POST", "/api/v1/namespaces", body=body)
    config = addon.credential("--csi", account, namespace)
    assert config["contexts"][0]["context"]["namespace"] == namespace
    assert status_of(client_of(config, tmp_path), namespace) == 200
    addon.run("--delete", account, namespace)


@pytest.mark.apiserver
def test_one_name_in_two_namespaces_is_two_accounts(addon: Addon, tmp_path: Path) -> None:
    one = client_of(addon.credential("shared", "tenant-a"), tmp_path)
    two = client_of(addon.credential("shared", "tenant-b"), tmp_path)
    assert (status_of(one, "tenant-a"), status_of(one, "tenant-b")) == (200, 403)
    assert (status_of(two, "tenant-a"), status_of(two, "tenant-b")) == (403, 200)
    addon.run("--delete", "shared", "tenant-a")
    assert status_of(two, "tenant-b") == 200
    assert addon.plane.admin.get_or_none("/api/v1/namespaces/tenant-a/serviceaccounts/shared") is None
    assert addon.plane.admin.get_or_none("/api/v1/namespaces/tenant-a/secrets/shared-token") is None


@pytest.mark.apiserver
def test_rotation_gives_another_token(addon: Addon, tmp_path: Path) -> None:
    old = addon.token("rotated", "tenant-a")
    new = addon.credential("--rotate", "rotated", "tenant-a")
    assert token_in(new) not in ("", old)
    assert token_in(new) == addon.token("rotated", "tenant-a"), "what a run prints is what the Secret has"
    # The name has nothing of the token: it stays when that changes.
    assert new["users"][0]["name"] == f"rotated-tenant-a-{addon.cluster}"
    assert status_of(client_of(new, tmp_path), "tenant-a") == 200


AGAIN = "Run this again without --rotate"


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("request_", "times", "printed"),
    [
        # A word of the request that fails, how often, and whether there is a token at the end.
        pytest.param("apply", 2, True, id="the new Secret is refused at first"),
        pytest.param("go-template=*index", 2, True, id="the token is not told at first"),
        pytest.param("apply", 99, False, id="the new Secret is refused"),
        pytest.param("go-template=*index", 99, False, id="the token is not told"),
        pytest.param("delete", 1, False, id="the answer to the deletion is lost"),
    ],
)
def test_rotation_never_leaves_one_without_a_token_or_a_word(
    addon: Addon, tmp_path: Path, request_: str, times: int, printed: bool
) -> None:
    old = addon.token("rotated", "tenant-a")
    real = (addon.bin / "kubectl").readlink()
    (addon.bin / "kubectl").unlink()
    # Only requests for the Secret fail: those after the first deletion. A deletion is made, and its answer lost.
    (addon.bin / "kubectl").write_text(
        f"""#!/bin/sh
case "$*" in *"delete secret"*) : > {tmp_path}/deleted; {real} "$@" || exit 1 ;; esac
case "$*" in *{request_}*) [ -e {tmp_path}/deleted ] && echo x >> {tmp_path}/failures &&
  [ "$(wc -l < {tmp_path}/failures)" -le {times} ] && echo "error: timeout" >&2 && exit 1 ;; esac
case "$*" in *"delete secret"*) exit 0 ;; esac
exec {real} "$@"
"""
    )
    (addon.bin / "kubectl").chmod(0o755)
    (addon.bin / "wc").symlink_to(shutil.which("wc") or "")
    arguments = ("--rotate", "--timeout", "3" if times > 9 else "60", "rotated", "tenant-a")
    output, messages = addon.run(*arguments, expect=HAS_DONE if printed else IS_REFUSED)
    assert (output != "", AGAIN in messages) == (printed, not printed)
    new = sections(output)[0] if printed else None
    (addon.bin / "kubectl").unlink()
    (addon.bin / "kubectl").symlink_to(real)
    new = new or addon.credential("rotated", "tenant-a")
    assert status_of(client_of(new, tmp_path), "tenant-a") == 200
    assert token_in(new) != old


@pytest.mark.apiserver
def test_account_made_again_gets_a_valid_token(addon: Addon, tmp_path: Path) -> None:
    addon.run("remade", "tenant-a")
    addon.plane.admin.request("DELETE", "/api/v1/namespaces/tenant-a/serviceaccounts/remade")
    config = addon.credential("remade", "tenant-a")
    assert status_of(client_of(config, tmp_path), "tenant-a") == 200


@pytest.mark.apiserver
def test_secret_of_somebody_else_is_left_alone(addon: Addon) -> None:
    metadata = {"name": "taken-token", "namespace": "tenant-a"}
    addon.plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "theirs"}}
    )
    _, messages = addon.run("taken", "tenant-a", expect=IS_REFUSED)
    assert "is no token of account taken" in messages
    secret = addon.plane.admin.request("GET", "/api/v1/namespaces/tenant-a/secrets/taken-token")
    assert base64.b64decode(secret["data"]["password"]) == b"theirs"


@pytest.mark.apiserver
def test_files_are_private(addon: Addon, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "cloud-config").touch(0o644)
    output, _ = addon.run("-o", str(target), "prod", "tenant-a")
    assert output == ""
    files = sorted(target.iterdir())
    assert [file.name for file in files] == ["cloud-config", "cloud-init.yaml"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


@pytest.mark.apiserver
def test_absent_namespace_and_foreign_cluster_are_named(addon: Addon, guest: ControlPlane, tmp_path: Path) -> None:
    assert "namespace nowhere is not usable" in addon.run("prod", "nowhere", expect=IS_REFUSED)[1]
    (tmp_path / "guest").mkdir()
    messages = Addon(guest, tmp_path / "guest").run("prod", "default", expect=IS_REFUSED)[1]
    assert "is context" in messages
    assert "a Harvester cluster?" in messages


@pytest.mark.apiserver
@pytest.mark.parametrize("how", ["time limit", "SIGTERM"])
def test_private_directory_goes_whatever_ends_the_wait(guest: ControlPlane, tmp_path: Path, how: str) -> None:
    role = Path(__file__).parents[2] / "devenv" / "rbac" / "harvester-cloud-provider.yaml"
    guest.apply(role)
    # Nothing fills token Secrets in this cluster.
    addon = Addon(guest, tmp_path)
    process = addon.start("--timeout", "10" if how == "time limit" else "60", "prod", "default")
    secret = "/api/v1/namespaces/default/secrets/prod-token"
    try:
        wait_until(lambda: any(addon.temporary.iterdir()), seconds=60, what="the directory")
        (directory,) = addon.temporary.iterdir()
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        wait_until(lambda: guest.admin.get_or_none(secret) is not None, seconds=60, what="the Secret")
        if how == "SIGTERM":
            os.kill(process.pid, signal.SIGTERM)
        _, messages = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
        guest.admin.request("DELETE", secret)
        guest.admin.request("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/harvesterhci.io:cloudprovider")
    assert list(addon.temporary.iterdir()) == []
    if how == "SIGTERM":
        assert process.returncode == 128 + signal.SIGTERM
    else:
        assert "got no token within 10 s: is kube-controller-manager running?" in messages


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("address", "server"), [("127.0.0.2", "https://127.0.0.2:6443"), ("::1", "https://[::1]:6443")]
)
def test_loopback_server_becomes_the_virtual_ip(addon: Addon, address: str, server: str) -> None:
    metadata = {"name": "vip", "namespace": "harvester-system"}
    addon.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ip": address}})
    try:
        output, messages = addon.run("prod", "tenant-a")
    finally:
        addon.plane.admin.request("DELETE", "/api/v1/namespaces/harvester-system/configmaps/vip")
    assert sections(output)[0]["clusters"][0]["cluster"]["server"] == server
    assert "Using Harvester's virtual IP" in messages
    assert f"could not be verified at {server}" in messages


@pytest.mark.apiserver
def test_server_can_be_chosen(addon: Addon) -> None:
    chosen = addon.credential("--server", "https://127.0.0.3:8443/", "prod", "tenant-a")
    assert chosen["clusters"][0]["cluster"]["server"] == "https://127.0.0.3:8443"


@pytest.mark.apiserver
def test_address_of_rancher_is_refused(addon: Addon) -> None:
    real = (addon.bin / "kubectl").readlink()
    (addon.bin / "kubectl").unlink()
    through_rancher = "https://rancher.example.org/k8s/clusters/c-m-1"
    (addon.bin / "kubectl").write_text(
        f'#!/bin/sh\ncase "$*" in *cluster.server*) echo {through_rancher} ;; *) exec {real} "$@" ;; esac\n'
    )
    (addon.bin / "kubectl").chmod(0o755)
    _, messages = addon.run("prod", "tenant-a", expect=IS_REFUSED)
    assert "goes through Rancher, where the token is not valid" in messages


@pytest.mark.apiserver
def test_csi_binding_of_another_account_is_kept(addon: Addon) -> None:
    admin = addon.plane.admin
    addon.plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}})
    addon.run("--csi", "prod", "tenant-a")
    binding = admin.request("GET", f"{CLUSTER_BINDINGS}/tenant-a-prod")
    assert binding["roleRef"]["name"] == "harvesterhci.io:csi-driver"
    # Namespace "tenant" and account "a-prod" give the same name.
    _, messages = addon.run("--csi", "a-prod", "tenant", expect=IS_REFUSED)
    assert "belongs to account tenant-a/prod" in messages
    addon.run("--delete", "a-prod", "tenant")
    assert admin.request("GET", f"{CLUSTER_BINDINGS}/tenant-a-prod")["subjects"] == binding["subjects"]
    addon.run("--delete", "prod", "tenant-a")
    assert admin.get_or_none(f"{CLUSTER_BINDINGS}/tenant-a-prod") is None


@pytest.mark.apiserver
def test_binding_of_the_earlier_script_is_reported(addon: Addon) -> None:
    addon.plane.apply(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "older"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "harvesterhci.io:cloudprovider",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "older", "namespace": "tenant-a"}],
        }
    )
    assert "kubectl delete clusterrolebinding older" in addon.run("older", "tenant-a")[1]
    assert "clusterrolebinding" not in addon.run("older", "tenant-b")[1]
