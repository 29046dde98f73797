"""``deploy/generate_addon.sh`` with a real kubectl against a cluster that really issues tokens.

Its handling of responses that no real server gives here is tested with a fake kubectl.
"""

import base64
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
import yaml

from devenv import restclient
from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.kubeconfig import write_token_kubeconfig
from devenv.restclient import Json, RestClient, wait_until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "generate_addon.sh"
SHELL = shutil.which("dash") or "sh"
"""The shell that is /bin/sh on Debian and Ubuntu."""
CONFIG_HEADER = "########## cloud config ############\n"
RKE1_HEADER = "\n########## RKE1: part of cluster.yml ############\n"
CLOUD_INIT_HEADER = "\n########## cloud-init user data ############\n"
PATHS = ["/etc/kubernetes/cloud-config", "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config"]
TOOLS = ("base64", "cat", "date", "mkdir", "mktemp", "mv", "rm", "sed", "sleep", "tr")
ROLE = "harvesterhci.io:cloudprovider"
BALANCERS = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/{}/loadbalancers"
CLUSTER_BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
KUBECTL = r"""
case "$*" in
  *"get "*clusterrole*"$SAID_MISSING"*"-o name"*) echo "error: not found" >&2; exit 1 ;;
  *"config view"*current-context*) echo context ;;
  *"config view"*cluster.server*) printf %s "$SAID_SERVER" ;;
  *"config view"*) printf %s "$SAID_CLUSTER" ;;
  *"configmap vip"*) printf %s "$SAID_VIP" ;;
  *clusterrolebinding*"-o jsonpath"*)
    [ -z "$SAID_UNREADABLE" ] || { echo "error: timeout" >&2; exit 1; }
    printf %s "$SAID_BOUND" ;;
  *"get serviceaccount"*) echo uid ;;
  *"get --ignore-not-found secret"*) [ "$SAID_SECRET" != unreadable ] || exit 1; printf %s "$SAID_SECRET" ;;
  *"delete "*)
    echo "${*#*delete }" >> "$KEPT_DELETED"
    case "$*" in *"$SAID_REFUSED"*) echo "error: forbidden" >&2; exit 1 ;; esac ;;
  *--kubeconfig="$TMPDIR"*--raw*) "$STAT" -c %a "$TMPDIR"/* > "$KEPT_MODE"; echo "dial: no route to host" >&2; exit 1 ;;
  *--dry-run*) echo "command: '$*'" ;;
  *" apply "*)
    { echo ---; cat; } >> "$KEPT_GIVEN"
    case "$*" in
      *go-template*) : > "$KEPT_ASKED"; printf %s "$SAID_TOKEN" ;;
    esac ;;
esac
"""
OF_ACCOUNT = "kubernetes.io/service-account"
TOKEN_TYPE = f"{OF_ACCOUNT}-token"
HAS_DONE = 0
IS_REFUSED = 1


class Script:
    """Runs the script as its users do, with nothing on PATH but what it says it needs (so no jq)."""

    def __init__(self, directory: Path) -> None:
        self.temporary = directory / "tmp"
        self.bin = directory / "bin"
        self.kubectl = self.bin / "kubectl"
        self.temporary.mkdir()
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found is not None, tool
            (self.bin / tool).symlink_to(found)

    @property
    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.temporary.parent), "TMPDIR": str(self.temporary)}

    def record_arguments(self) -> Path:
        """Record the arguments of every program that is started from now on; return the file."""
        arguments = self.bin.parent / "arguments"
        for program in list(self.bin.iterdir()):
            real = program.readlink()
            program.unlink()
            program.write_text(f'#!{shutil.which(SHELL)}\nprintf "%s\\n" "$0" "$@" >> {arguments}\nexec {real} "$@"\n')
            program.chmod(0o755)
        return arguments

    def speed_up(self) -> None:
        """Let the script's clock run ten times as fast, to shorten its time limits."""
        date = self.bin / "date"
        real = date.readlink()
        date.unlink()
        date.write_text(f'#!/bin/sh\necho $(($({real} "$@") * 10))\n')
        date.chmod(0o755)

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

    def credential(self, *arguments: str) -> Json:
        config, _ = sections(self.run(*arguments)[0])
        return config


class Addon(Script):
    """The script on a cluster."""

    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        super().__init__(directory)
        self.plane = plane
        self.kubeconfig = plane.admin_kubeconfig
        self.kubectl.symlink_to(require("kubectl")["kubectl"])

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {
            "KUBECONFIG": str(self.kubeconfig),
            # Discovery is cached for all tests.
            "KUBECACHEDIR": str(self.plane.directory / "kubectl"),
        }

    @property
    def cluster(self) -> str:
        name: str = yaml.safe_load(self.plane.admin_kubeconfig.read_text())["clusters"][0]["name"]
        return name

    def token(self, account: str, namespace: str) -> str:
        secret = self.plane.admin.get_or_none(f"/api/v1/namespaces/{namespace}/secrets/{account}-token") or {}
        present = secret.get("data", {}).get("token")
        return base64.b64decode(present).decode() if present else token_in(self.credential(account, namespace))


class Rehearsal(Script):
    """The script with a fake kubectl that returns ``answers`` and stores the objects to apply."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.kubectl.write_text(f"#!{shutil.which(SHELL)}\n{KUBECTL}")
        self.kubectl.chmod(0o755)
        self.given = directory / "given"
        self.asked = directory / "asked"
        self.mode = directory / "mode"
        self.deleted = directory / "deleted"
        self.answers = {
            "SAID_SERVER": "https://192.0.2.1:6443",
            "SAID_CLUSTER": "cluster",
            "SAID_VIP": "",
            "SAID_TOKEN": "Y2E= token",
            "SAID_UNREADABLE": "",
            "SAID_BOUND": "",
            "SAID_SECRET": "",
            "SAID_REFUSED": "nothing",
            "SAID_MISSING": "nothing",
        }

    @property
    def environment(self) -> dict[str, str]:
        files = {"GIVEN": self.given, "ASKED": self.asked, "MODE": self.mode, "DELETED": self.deleted}
        kept = {f"KEPT_{name}": str(file) for name, file in files.items()}
        return super().environment | self.answers | kept | {"STAT": shutil.which("stat") or ""}

    @property
    def applied(self) -> list[Json]:
        return [document for document in yaml.safe_load_all(self.given.read_text()) if document]


def token_in(config: Json) -> str:
    token: str = config["users"][0]["user"]["token"]
    return token


@pytest.fixture
def addon(harvester: ControlPlane, tmp_path: Path) -> Addon:
    return Addon(harvester, tmp_path)


@pytest.fixture
def addon_of_nothing(tmp_path: Path) -> Script:
    """With a real kubectl and without a cluster."""
    script = Script(tmp_path)
    script.kubectl.symlink_to(require("kubectl")["kubectl"])
    return script


@pytest.fixture
def rehearsal(tmp_path: Path) -> Rehearsal:
    return Rehearsal(tmp_path)


@pytest.fixture(scope="module")
def made(harvester: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Output and messages of the first run for account prod in tenant-a."""
    return Addon(harvester, tmp_path_factory.mktemp("made")).run("prod", "tenant-a")


def sections(output: str) -> tuple[Json, Json]:
    assert output.startswith(CONFIG_HEADER)
    config, cloud_init = output.removeprefix(CONFIG_HEADER).split(CLOUD_INIT_HEADER)
    return yaml.safe_load(config), yaml.safe_load(cloud_init)


def client_of(config: Mapping[str, object], directory: Path) -> RestClient:
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(dict(config)))
    return RestClient(file)


def status_of(client: RestClient, namespace: str) -> int:
    return restclient.status_of(client, "GET", BALANCERS.format(namespace))


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
        (["Prod_1", "vms"], '"Prod_1" or "vms" is not a valid name'),
        (["prod", "vms/x"], '"prod" or "vms/x" is not a valid name'),
        (["prod", "vms", "more"], "unexpected argument more"),
        (["--server", "10.0.0.1", "prod", "vms"], '--server "10.0.0.1"'),
        (["--server", "https:///x", "prod", "vms"], '--server "https:///x"'),
        (["--rke1", "nowhere.yaml", "prod", "vms"], '--rke1 "nowhere.yaml" cannot be read'),
        (["--sever", "prod", "vms"], "unknown option --sever"),
        (["prod", "vms", "--server"], "option --server needs a value"),
        (["--address-pools", "lan,", "prod", "vms"], "is not a list of names"),
        (["--address-pools", "lan, dmz", "prod", "vms"], "is not a list of names"),
        (["--address-pools", "lan'", "prod", "vms"], "is not a list of names"),
        (["--shared-pool", "prod", "vms"], "--shared-pool is about the pools of --address-pools: give both"),
        (["--address-pools", "lan", "--delete", "prod", "vms"], "cannot be combined with --delete"),
    ],
)
def test_wrong_argument_is_named(arguments: list[str], message: str) -> None:
    done = subprocess.run([SHELL, SCRIPT, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == IS_REFUSED
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.apiserver
@pytest.mark.security("file on the Nodes, from `generate_addon.sh` or Rancher")
@pytest.mark.security("root, mode 0600")
def test_result_is_a_kubeconfig_and_cloud_init_data_for_both_paths(
    made: tuple[str, str], addon: Addon, tmp_path: Path
) -> None:
    output, messages = made
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
def test_second_run_gives_the_same(made: tuple[str, str], addon: Addon) -> None:
    assert addon.run("prod", "tenant-a")[0] == made[0]


def test_both_paths_lead_to_one_script() -> None:
    """A server of raw files returns the target of a link instead of its content."""
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
    assert (secret["kind"], secret["metadata"]["name"]) == ("Secret", "cloud-config")
    assert secret["metadata"]["namespace"] == "kube-system"
    assert yaml.safe_load(base64.b64decode(secret["data"]["cloud-config"])) == config
    assert objects == list(yaml.safe_load_all(manifest.read_text().replace("CLUSTER-NAME", "old-one")))

    addon.run("--output", str(tmp_path / "out"), "--rke1", str(manifest), "old-one", "tenant-a")
    written = tmp_path / "out" / "rke1-addons.yaml"
    assert written.read_text() == part
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.parametrize(("account", "namespace"), [("2024", "on"), ("null", "1e3"), ("2024-11-21", "0x1f")])
def test_account_and_namespace_are_quoted_in_yaml(rehearsal: Rehearsal, account: str, namespace: str) -> None:
    rehearsal.answers |= {"SAID_CLUSTER": "it's: Harvester", "SAID_BOUND": f"{namespace}/{account}"}
    rehearsal.answers["SAID_SECRET"] = f"{TOKEN_TYPE} {account} uid"
    config = rehearsal.credential("--csi", account, namespace)
    assert config["clusters"][0]["name"] == config["contexts"][0]["context"]["cluster"] == "it's: Harvester"
    assert config["contexts"][0]["context"]["namespace"] == namespace
    *commands, secret = rehearsal.applied
    assert [one["command"].split()[2:5] for one in commands] == [
        ["create", "serviceaccount", account],
        ["create", "rolebinding", f"{namespace}-{account}"],
        ["create", "clusterrolebinding", f"{namespace}-{account}"],
    ]
    assert secret["metadata"]["namespace"] == namespace
    assert secret["metadata"]["annotations"] == {f"{OF_ACCOUNT}.name": account, f"{OF_ACCOUNT}.uid": "uid"}
    assert not rehearsal.deleted.exists(), "a valid token stays valid"


@pytest.mark.apiserver
@pytest.mark.security("`--delete` removes the account")
def test_one_name_in_two_namespaces_is_two_accounts(addon: Addon, tmp_path: Path) -> None:
    one = client_of(addon.credential("shared", "tenant-a"), tmp_path)
    two = client_of(addon.credential("shared", "tenant-b"), tmp_path)
    assert (status_of(one, "tenant-a"), status_of(one, "tenant-b")) == (200, 403)
    assert (status_of(two, "tenant-a"), status_of(two, "tenant-b")) == (403, 200)
    addon.run("--delete", "shared", "tenant-a")
    assert status_of(two, "tenant-b") == 200
    assert addon.plane.admin.get_or_none("/api/v1/namespaces/tenant-a/serviceaccounts/shared") is None
    assert addon.plane.admin.get_or_none("/api/v1/namespaces/tenant-a/secrets/shared-token") is None


HARVESTER_PERMISSIONS: dict[str, set[str]] = {
    "loadbalancer.harvesterhci.io loadbalancers": {"get", "list", "watch", "create", "update", "delete"},
    "kubevirt.io virtualmachines": {"get", "list", "watch"},
    "kubevirt.io virtualmachineinstances": {"get", "list", "watch"},
    " persistentvolumeclaims": {"get", "list", "watch", "create", "update", "patch", "delete"},
    " secrets": set(),
}
"""Verbs of the account by group and resource."""


@pytest.mark.apiserver
@pytest.mark.security(
    "`generate_addon.sh` binds the ClusterRole `harvesterhci.io:cloudprovider` in one namespace: "
    "load balancers read and write, VMs read"
)
@pytest.mark.security("Harvester's role also contains volumes, for the CSI driver")
@pytest.mark.security("The token does not expire")
@pytest.mark.security("Its holder can change load balancers and volumes in the namespace")
@pytest.mark.security("namespace in Harvester")
def test_token_does_not_expire_and_has_the_permissions_of_the_role(addon: Addon, tmp_path: Path) -> None:
    config = addon.credential("permitted", "tenant-a")
    payload = token_in(config).split(".")[1]
    assert "exp" not in json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    client = client_of(config, tmp_path)

    def is_allowed(namespace: str, resource: str, verb: str) -> bool:
        group, _, plural = resource.partition(" ")
        attributes = {"namespace": namespace, "group": group, "resource": plural, "verb": verb}
        review = client.request(
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            body={"spec": {"resourceAttributes": attributes}},
        )
        return bool(review["status"]["allowed"])

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    for namespace in ("tenant-a", "tenant-b"):
        allowed = {
            resource: {verb for verb in verbs if is_allowed(namespace, resource, verb)}
            for resource in HARVESTER_PERMISSIONS
        }
        if namespace == "tenant-a":
            assert allowed == HARVESTER_PERMISSIONS
        else:
            assert not any(allowed.values())


AGAIN = "Run this again with --rotate"


def fail_after_the_replacement(addon: Addon, request: str, *, times: int) -> None:
    """Let the first requests with this text fail once the account is replaced. The script gets no response to that."""
    real, directory = addon.kubectl.readlink(), addon.bin.parent
    addon.kubectl.unlink()
    failed = directory / "failed"
    addon.kubectl.write_text(
        f"""#!/bin/sh
case "$*" in *" replace "*) {real} "$@" || exit 1; : > {directory}/replaced ;; esac
case "$*" in *{request}*) [ -e {directory}/replaced ] && echo x >> {failed} &&
  [ "$(wc -l < {failed})" -le {times} ] && echo "error: timeout" >&2 && exit 1 ;; esac
case "$*" in *" replace "*) exit 0 ;; esac
exec {real} "$@"
"""
    )
    addon.kubectl.chmod(0o755)
    (addon.bin / "wc").symlink_to(shutil.which("wc") or "")


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("request_", "times"),
    [
        # A word of the request that fails, and how often.
        pytest.param("apply", 2, id="the new Secret is refused twice"),
        pytest.param("apply", 99, id="the new Secret is refused"),
        pytest.param('" replace "', 1, id="the response to the replacement is lost"),
    ],
)
def test_rotation_replaces_the_token_or_names_the_next_step(
    addon: Addon, tmp_path: Path, request_: str, times: int
) -> None:
    old = addon.token("rotated", "tenant-a")
    real = addon.kubectl.readlink()
    fails = request_ != "apply" or times > 2
    if fails:
        addon.speed_up()
    fail_after_the_replacement(addon, request_, times=times)
    output, messages = addon.run("--rotate", "rotated", "tenant-a", expect=IS_REFUSED if fails else HAS_DONE)
    assert (AGAIN in messages) is fails
    assert (output == "") is fails
    if not fails:
        new = sections(output)[0]
        assert token_in(new) == addon.token("rotated", "tenant-a")
        # The name does not contain the token: it stays.
        assert new["users"][0]["name"] == f"rotated-tenant-a-{addon.cluster}"
    addon.kubectl.unlink()
    addon.kubectl.symlink_to(real)
    new = addon.credential("rotated", "tenant-a")
    assert status_of(client_of(new, tmp_path), "tenant-a") == 200
    assert token_in(new) != old


def is_rejected(addon: Addon, token: str) -> bool:
    """Return whether the API server does not authenticate a token."""
    file = addon.temporary.parent / "with-token"
    write_token_kubeconfig(file, addon.plane.endpoint, token=token, namespace="tenant-a")
    return status_of(RestClient(file), "tenant-a") == 401


@pytest.mark.apiserver
@pytest.mark.security("All previous tokens of the account become invalid within ten seconds")
@pytest.mark.security("also if a Secret with the old name is created again")
def test_three_rotations_give_three_tokens_and_only_the_last_is_accepted(addon: Addon, tmp_path: Path) -> None:
    first = token_in(addon.credential("leaked", "tenant-a"))
    second = token_in(addon.credential("--rotate", "leaked", "tenant-a"))
    last = addon.credential("--rotate", "leaked", "tenant-a")
    assert len({first, second, token_in(last)}) == 3
    for old in (first, second):
        # The API server remembers an accepted token for ten seconds.
        wait_until(partial(is_rejected, addon, old), seconds=60, what="rejection of the old token")
    assert status_of(client_of(last, tmp_path), "tenant-a") == 200
    # The Secret keeps the name that Harvester's own script and its API for Rancher use. Whoever creates it again does
    # not make an old token valid.
    secret = "/api/v1/namespaces/tenant-a/secrets/leaked-token"
    addon.plane.admin.request("DELETE", secret)
    assert addon.credential("leaked", "tenant-a") == last
    assert is_rejected(addon, first)
    assert is_rejected(addon, second)


@pytest.mark.apiserver
@pytest.mark.security(
    "After a leak, run `deploy/generate_addon.sh --rotate`: it replaces the service account by one with the same name"
)
def test_rotation_keeps_labels_of_the_account_and_bindings_that_it_owns(addon: Addon, tmp_path: Path) -> None:
    """Harvester's API for Rancher creates bindings that are owned by the account."""
    admin = addon.plane.admin
    account = admin.request(
        "POST",
        "/api/v1/namespaces/tenant-a/serviceaccounts",
        body={"metadata": {"name": "owning", "labels": {"team": "shop"}}},
    )
    reference = {"apiVersion": "v1", "kind": "ServiceAccount"} | {
        key: account["metadata"][key] for key in ("name", "uid")
    }
    binding = {
        "metadata": {"name": "tenant-a-owning", "ownerReferences": [reference]},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "owning", "namespace": "tenant-a"}],
    }
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant-a/rolebindings"
    admin.request("POST", bindings, body=binding)
    new = addon.credential("--rotate", "owning", "tenant-a")
    replaced = admin.request("GET", "/api/v1/namespaces/tenant-a/serviceaccounts/owning")
    assert replaced["metadata"]["uid"] != account["metadata"]["uid"]
    assert replaced["metadata"]["labels"] == {"team": "shop"}
    # The garbage collector deletes what only the old account owns.
    assert "ownerReferences" not in admin.request("GET", f"{bindings}/tenant-a-owning")["metadata"]
    assert status_of(client_of(new, tmp_path), "tenant-a") == 200


@pytest.mark.apiserver
def test_recreated_account_gets_a_valid_token(addon: Addon, tmp_path: Path) -> None:
    addon.run("remade", "tenant-a")
    addon.plane.admin.request("DELETE", "/api/v1/namespaces/tenant-a/serviceaccounts/remade")
    config = addon.credential("remade", "tenant-a")
    assert status_of(client_of(config, tmp_path), "tenant-a") == 200


@pytest.mark.apiserver
def test_secret_of_another_user_never_changes(addon: Addon) -> None:
    metadata = {"name": "taken-token", "namespace": "tenant-a"}
    addon.plane.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"password": "theirs"}}
    )
    _, messages = addon.run("taken", "tenant-a", expect=IS_REFUSED)
    assert "is not a token of account taken" in messages
    _, deleting = addon.run("--delete", "taken", "tenant-a")
    assert "Secret tenant-a/taken-token is not a token of account taken, and is left" in deleting
    secret = addon.plane.admin.request("GET", "/api/v1/namespaces/tenant-a/secrets/taken-token")
    assert base64.b64decode(secret["data"]["password"]) == b"theirs"


OBJECTS = "--ignore-not-found serviceaccount/prod rolebinding/tenant-a-prod"
SECRET = f"{TOKEN_TYPE} prod uid"
OTHER_SECRET = f"{TOKEN_TYPE} prod-2 uid"
BINDING = "clusterrolebinding/tenant-a-prod"


@pytest.mark.parametrize(
    ("answers", "deleted", "message"),
    [
        ({}, [f"{OBJECTS} secret/prod-token", BINDING], ""),
        ({"SAID_BOUND": "tenant-a/other"}, [f"{OBJECTS} secret/prod-token"], ""),
        ({"SAID_SECRET": ""}, [OBJECTS, BINDING], ""),
        ({"SAID_SECRET": "Opaque"}, [OBJECTS, BINDING], "is not a token of account prod, and is left"),
        ({"SAID_SECRET": OTHER_SECRET}, [OBJECTS, BINDING], "is not a token of account prod, and is left"),
        ({"SAID_SECRET": "unreadable"}, [OBJECTS, BINDING], "not everything was deleted"),
        ({"SAID_MISSING": "address-pools"}, [f"{OBJECTS} secret/prod-token", BINDING], "not everything was deleted"),
        ({"SAID_UNREADABLE": "yes"}, [f"{OBJECTS} secret/prod-token"], "not everything was deleted"),
        ({"SAID_REFUSED": "serviceaccount"}, [f"{OBJECTS} secret/prod-token", BINDING], "not everything was deleted"),
        ({"SAID_REFUSED": BINDING}, [f"{OBJECTS} secret/prod-token", BINDING], "not everything was deleted"),
    ],
)
def test_deletion_continues_after_an_error(
    rehearsal: Rehearsal, answers: dict[str, str], deleted: list[str], message: str
) -> None:
    rehearsal.answers |= {"SAID_SECRET": SECRET, "SAID_BOUND": "tenant-a/prod"} | answers
    expect = IS_REFUSED if message.startswith("not everything") else HAS_DONE
    _, messages = rehearsal.run("--delete", "prod", "tenant-a", expect=expect)
    assert rehearsal.deleted.read_text().splitlines() == deleted
    assert message in messages


def test_token_of_another_account_is_not_taken(rehearsal: Rehearsal) -> None:
    rehearsal.answers["SAID_SECRET"] = OTHER_SECRET
    assert "is not a token of account prod:" in rehearsal.run("prod", "tenant-a", expect=IS_REFUSED)[1]


def test_account_that_stays_the_same_is_not_reported_as_replaced(rehearsal: Rehearsal) -> None:
    output, messages = rehearsal.run("--rotate", "prod", "tenant-a", expect=IS_REFUSED)
    assert output == ""
    assert "service account tenant-a/prod was not replaced" in messages
    assert AGAIN in messages


@pytest.mark.security("The files that the script writes")
@pytest.mark.security("are readable only for their owner")
def test_files_and_the_temporary_directory_are_private(rehearsal: Rehearsal, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "cloud-config").touch(0o644)
    output, _ = rehearsal.run("-o", str(target), "prod", "tenant-a")
    assert output == ""
    files = sorted(target.iterdir())
    assert [file.name for file in files] == ["cloud-config", "cloud-init.yaml"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert rehearsal.mode.read_text() == "700\n"


@pytest.mark.apiserver
@pytest.mark.security("No command puts the token into an argument")
def test_token_is_in_no_argument_of_a_process(addon: Addon) -> None:
    arguments = addon.record_arguments()
    manifest = ROOT / "deploy" / "manifests" / "rke1.yaml"
    output, _ = addon.run("--rotate", "--rke1", str(manifest), "unlisted", "tenant-a")
    config, cloud_init = sections(output.split(RKE1_HEADER)[0])
    recorded = arguments.read_text()
    assert "replace" in recorded
    assert token_in(config) not in recorded
    assert cloud_init["write_files"][0]["content"] not in recorded


@pytest.mark.security("those of the commands on these pages, are readable only for their owner")
@pytest.mark.security("No command puts the token into an argument")
@pytest.mark.security("Secret `kube-system/cloud-config`")
def test_manifest_with_the_credential_is_written_as_on_the_page(tmp_path: Path) -> None:
    """The commands of the page about preparations, in a copy of the checkout."""
    page = (ROOT / "docs" / "installation" / "prepare.md").read_text()
    commands = re.search(r"## \d\. Write the manifest\n.*?```sh\n(.*?)```", page, re.DOTALL)
    assert commands is not None
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    (tmp_path / "out").mkdir()
    cloud_config = tmp_path / "out" / "cloud-config"
    cloud_config.write_text("token: a-token-that-is-not-listed\n" * 50)
    shell = Script(tmp_path)
    (shell.bin / "tar").symlink_to(shutil.which("tar") or "")
    (shell.bin / "gzip").symlink_to(shutil.which("gzip") or "")
    arguments = shell.record_arguments()
    environment = shell.environment | {"CLUSTER": "my-cluster", "REPOSITORY": "registry.example.org/mine"}
    script = f"umask 022\n{commands[1]}"
    subprocess.run([SHELL, "-ec", script], check=True, cwd=tmp_path, env=environment, timeout=60)
    manifest = tmp_path / "out" / "harvester-ccm.yaml"
    assert stat.S_IMODE(manifest.stat().st_mode) == 0o600
    secret, chart = yaml.safe_load_all(manifest.read_text())
    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("kube-system", "cloud-config")
    assert base64.b64decode(secret["data"]["cloud-config"]) == cloud_config.read_bytes()
    assert "clusterName: my-cluster" in chart["spec"]["valuesContent"]
    assert base64.b64decode(chart["spec"]["chartContent"])
    assert "helmchart.yaml" in arguments.read_text()
    assert secret["data"]["cloud-config"] not in arguments.read_text()


COMMANDS_WITH_CREDENTIAL = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, block in enumerate(re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL))
    if re.search(r"out/cloud-config.*> |> .*out/cloud-config|credential.*> ", block, re.DOTALL)
]


@pytest.mark.security("those of the commands on these pages, are readable only for their owner")
@pytest.mark.parametrize("commands", COMMANDS_WITH_CREDENTIAL)
def test_pages_write_credentials_for_the_owner_only_into_the_ignored_directory(commands: str) -> None:
    assert "umask 077" in commands
    written = re.findall(r"> (\S*(?:harvester-ccm|credential|guest)\S*?)\)?(?:\s|$)", commands)
    assert written
    for file in written:
        ignored = subprocess.run(["git", "check-ignore", "-q", file], check=False, cwd=ROOT)
        assert ignored.returncode == 0, file


@pytest.mark.apiserver
def test_absent_namespace_and_foreign_cluster_are_named(addon: Addon, guest: ControlPlane, tmp_path: Path) -> None:
    assert "namespace nowhere is not usable" in addon.run("prod", "nowhere", expect=IS_REFUSED)[1]
    (tmp_path / "guest").mkdir()
    messages = Addon(guest, tmp_path / "guest").run("prod", "default", expect=IS_REFUSED)[1]
    assert "is context" in messages
    assert "a Harvester cluster?" in messages


@pytest.mark.parametrize("how", ["time limit", "SIGTERM"])
def test_wait_for_the_token_ends_with_a_message_or_a_signal(rehearsal: Rehearsal, how: str) -> None:
    rehearsal.answers["SAID_TOKEN"] = ""
    if how == "time limit":
        rehearsal.speed_up()
    process = rehearsal.start("prod", "default")
    try:
        wait_until(rehearsal.asked.exists, seconds=60, what="the request for the token")
        if how == "SIGTERM":
            os.kill(process.pid, signal.SIGTERM)
        _, messages = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert list(rehearsal.temporary.iterdir()) == []
    if how == "SIGTERM":
        assert process.returncode == 128 + signal.SIGTERM
    else:
        assert "got no token within 30 s: is kube-controller-manager running?" in messages


THROUGH_RANCHER = "https://rancher.example.org/k8s/clusters/c-m-1"


CHOSEN = ("--server", "https://127.0.0.3:8443/")


@pytest.mark.parametrize(
    ("options", "context_server", "vip", "server"),
    [
        ((), "https://192.0.2.1:6443/", "127.0.0.2", "https://192.0.2.1:6443"),
        ((), "https://127.0.0.1:6443", "192.0.2.9", "https://192.0.2.9:6443"),
        ((), "https://localhost:6443", "::1", "https://[::1]:6443"),
        ((), "https://[::1]:6443", "192.0.2.9", "https://192.0.2.9:6443"),
        ((), "https://0.0.0.0", "192.0.2.9", "https://192.0.2.9:6443"),
        ((), "https://localhost", "", "https://localhost"),
        ((), THROUGH_RANCHER, "192.0.2.9", "https://192.0.2.9:6443"),
        (CHOSEN, THROUGH_RANCHER, "192.0.2.9", "https://127.0.0.3:8443"),
    ],
)
def test_server_is_one_that_nodes_reach(
    rehearsal: Rehearsal, options: tuple[str, ...], context_server: str, vip: str, server: str
) -> None:
    rehearsal.answers |= {"SAID_SERVER": context_server, "SAID_VIP": vip}
    output, messages = rehearsal.run(*options, "prod", "tenant-a")
    assert sections(output)[0]["clusters"][0]["cluster"]["server"] == server
    replaced = not options and server != context_server.rstrip("/")
    assert ("Using Harvester's virtual IP" in messages) is replaced
    assert ("nodes need another address" in messages) is ("localhost" in server)
    assert f"could not be verified at {server}: dial: no route to host" in messages
    assert "Using context context\n" in messages


@pytest.mark.parametrize(
    ("context_server", "message"),
    [
        (THROUGH_RANCHER, "goes through Rancher, where the token is not valid"),
        ("", 'cluster "cluster" of context context has no server'),
    ],
)
def test_unusable_server_ends_the_script_before_it_creates_objects(
    rehearsal: Rehearsal, context_server: str, message: str
) -> None:
    rehearsal.answers["SAID_SERVER"] = context_server
    assert message in rehearsal.run("prod", "tenant-a", expect=IS_REFUSED)[1]
    assert not rehearsal.given.exists()


def test_binding_that_cannot_be_read_is_not_replaced(rehearsal: Rehearsal) -> None:
    """It might belong to another account."""
    rehearsal.answers["SAID_UNREADABLE"] = "yes"
    rehearsal.run("--csi", "prod", "tenant-a", expect=IS_REFUSED)
    assert "clusterrolebinding" not in str(rehearsal.applied)


def test_harvester_without_the_role_of_the_csi_driver_gets_no_credential(rehearsal: Rehearsal) -> None:
    """A binding to a role that does not exist would grant nothing, and nothing would tell."""
    rehearsal.answers["SAID_MISSING"] = "harvesterhci.io:csi-driver"
    _, messages = rehearsal.run("--csi", "prod", "tenant-a", expect=IS_REFUSED)
    assert "Harvester 1.2.0 and 1.2.1 have none: update Harvester, or omit --csi" in messages
    assert not rehearsal.given.exists()
    rehearsal.run("--csi", "--delete", "prod", "tenant-a")
    rehearsal.run("prod", "tenant-a")


NO_CONTEXT = "kubectl has no usable context: set KUBECONFIG"


@pytest.mark.parametrize(
    ("options", "context", "cluster", "message"),
    [
        ((), None, {}, NO_CONTEXT),
        (("--context", "nowhere"), {"cluster": "c", "user": "u"}, {"server": "https://127.0.0.1:1"}, NO_CONTEXT),
        ((), {"cluster": "other", "user": "u"}, {"server": "https://127.0.0.1:1"}, NO_CONTEXT),
        ((), {"cluster": "c", "user": "other"}, {"server": "https://127.0.0.1:1"}, NO_CONTEXT),
        ((), {"cluster": "c", "user": "u"}, {}, 'cluster "c" of context x has no server'),
        (("--context", "x"), {"cluster": "", "user": "u"}, {}, 'cluster "" of context x has no server'),
    ],
)
def test_unusable_context_is_named(
    addon_of_nothing: Script, options: tuple[str, ...], context: Json | None, cluster: Json, message: str
) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": context}] if context else [],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    home = addon_of_nothing.temporary.parent / ".kube"
    home.mkdir()
    (home / "config").write_text(yaml.safe_dump(config))
    assert message in addon_of_nothing.run(*options, "prod", "tenant-a", expect=IS_REFUSED)[1]


def test_absent_kubectl_is_named(addon_of_nothing: Script) -> None:
    addon_of_nothing.kubectl.unlink()
    assert "kubectl was not found on PATH" in addon_of_nothing.run("prod", "tenant-a", expect=IS_REFUSED)[1]


def test_help_explains_every_option() -> None:
    done = subprocess.run([SHELL, SCRIPT, "-h"], check=True, capture_output=True, text=True)
    explained = set(re.findall(r"^  (?:-o, )?(--[a-z0-9-]+)", done.stdout, re.MULTILINE))
    assert explained == {"--delete", *re.findall(r"^      (--[a-z0-9-]+)", SCRIPT.read_text(), re.MULTILINE)}


def test_harvester_without_policies_is_reported(rehearsal: Rehearsal) -> None:
    _, messages = rehearsal.run("--address-pools", "lan", "prod", "tenant-a")
    assert "by the API, the account could also edit these pools" in messages
    kinds = {document.get("kind") for document in rehearsal.applied}
    assert {"ClusterRole", "ClusterRoleBinding"} <= kinds
    assert not {kind for kind in kinds if kind and "Policy" in kind}


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
    # Nor because of a Secret with the text of a binding.
    words = f"uid\nClusterRoleBinding {binding['metadata']['name']}: tenant/a-prod"
    metadata = {"name": "a-prod-token", "namespace": "tenant", "annotations": {f"{OF_ACCOUNT}.uid": words}}
    addon.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    addon.run("--delete", "a-prod", "tenant")
    assert admin.request("GET", f"{CLUSTER_BINDINGS}/tenant-a-prod")["subjects"] == binding["subjects"]
    _, messages = addon.run("--delete", "prod", "tenant-a")
    assert admin.get_or_none(f"{CLUSTER_BINDINGS}/tenant-a-prod") is None
    assert "warning" not in messages.lower(), "kubectl warns of what is deleted in a namespace and is in none"


@pytest.mark.parametrize("namespace", ["tenant-a", "tenant-b"])
def test_binding_of_the_earlier_script_is_reported(rehearsal: Rehearsal, namespace: str) -> None:
    rehearsal.answers["SAID_BOUND"] = "tenant-a/older"
    messages = rehearsal.run("older", namespace)[1]
    assert ("kubectl delete clusterrolebinding older" in messages) is (namespace == "tenant-a")
