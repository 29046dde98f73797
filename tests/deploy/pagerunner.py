"""Runs the commands of a page as a reader does: one after the other, in one shell that starts in an empty folder.

``kubectl`` and ``helm`` are real and work on two real API servers, with emulators of Harvester and kube-vip. No kubelet
runs, so the controller of an applied Deployment starts as a process with the flags and the Secret of its pod, when the
page waits for it. ``git``, ``make``, ``docker``, ``ssh``, ``scp`` and ``curl`` are replaced by programs that record
their arguments, and return what a node or the repository would: a kubeconfig, or the files of the checkout.
"""

import asyncio
import base64
import os
import re
import shutil
import stat
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import yaml

from devenv.apiserver import ControlPlane
from devenv.binaries import require
from devenv.ccm import CcmProcess
from devenv.endpointslices import EndpointSlices
from devenv.harvester.emulator import HarvesterEmulator
from devenv.harvester.queue import FAST
from devenv.helm import NAMESPACE, RELEASE
from devenv.kubevip import KubeVip, KubeVipOptions
from devenv.restclient import Json
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from tests.deploy.documented_names import code_blocks

ROOT: Final = Path(__file__).parents[2]
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/cloud-config"
ADDRESSES: Final = "127.77.40"
"""Network of the pool that the reader chooses."""
SERVER: Final = "192.0.2.11"
"""Address of the server node on the pages."""
NODE_KUBECONFIGS: Final[Mapping[str, str]] = {
    "etc/rancher/rke2/rke2.yaml": "127.0.0.1",
    "etc/rancher/k3s/k3s.yaml": "127.0.0.1",
    "etc/kubernetes/admin.conf": SERVER,
}
"""Files on a server node, and the address in each."""
BLOCK_SECONDS: Final = 120.0
KUBECTL: Final = """\
#!/bin/bash
# kubectl, without kubelets: the test starts the controller, and commands in its pod run here.
set -e
# The address of the server node leads to the API server of the guest cluster.
if [ -n "${KUBECONFIG:-}" ] && grep -q "https://$SERVER:6443" "$KUBECONFIG"; then
  sed -i "s#https://$SERVER:6443#$GUEST_URL#" "$KUBECONFIG"
fi
case " $* " in
  *" rollout status "*)
    touch "$WORK/wanted"
    until [ -e "$WORK/started" ]; do sleep 0.1; done
    exec "$REAL_KUBECTL" -n kube-system get deployment harvester-cloud-provider ;;
  *" logs deploy/harvester-cloud-provider "*)
    touch "$WORK/wanted"
    cat "$WORK/log" ;;
  *" exec deploy/harvester-cloud-provider -- harvester-ccm "*)
    while [ "$1" != -- ]; do shift; done
    command=$3
    shift 3
    xargs -a "$WORK/flags" "$PYTHON" -m harvester_ccm "$command" "$@" ;;
  *) exec "$REAL_KUBECTL" "$@" ;;
esac
"""
RECORDER: Final = """\
#!/bin/bash
printf '%s' "$(basename "$0")" >> "$WORK/recorded"
printf ' %s' "$@" >> "$WORK/recorded"
echo >> "$WORK/recorded"
"""
MAKE: Final = """\
#!/bin/bash
# The targets and variables exist; nothing is built.
exec "$REAL_MAKE" -n -C "$ROOT" "$@" > /dev/null
"""
COPIER: Final = """\
#!/bin/bash
# Copies a file to a folder that stands for all nodes, or from it.
set -e
printf 'scp %s %s\\n' "$@" >> "$WORK/recorded"
from=$1 to=$2
case $from in root@*) from=$NODE_FILES/${from#*:} ;; esac
case $to in root@*) to=$NODE_FILES/${to#*:} ;; esac
cp "$from" "$to"
"""
SHELL: Final = """\
#!/bin/bash
# Only the kubeconfig of a node can be read.
set -e
printf 'ssh' >> "$WORK/recorded"
printf ' %s' "$@" >> "$WORK/recorded"
echo >> "$WORK/recorded"
case $2 in
  cat) cat "$NODE_FILES/$3" ;;
  mkdir) for folder in "${@:4}"; do mkdir -p "$NODE_FILES/$folder"; done ;;
esac
"""
GIT: Final = """\
#!/bin/bash
# A clone has the folder from which is installed.
set -e
test "$*" = "clone https://git.example.org/harvester-ccm.git"
mkdir harvester-ccm
cp -r "$ROOT/deploy" harvester-ccm/deploy
"""
DOCKER: Final = """\
#!/bin/bash
# An image that is saved is an empty file.
set -e
printf 'docker' >> "$WORK/recorded"
printf ' %s' "$@" >> "$WORK/recorded"
echo >> "$WORK/recorded"
case $1 in save) touch "$3" ;; esac
"""
OWN: Final = """\
#!/bin/bash
exec "$PYTHON" -m harvester_ccm "$@"
"""


def commands_of(page: Path, *, section: str = "") -> list[str]:
    """Return the shell examples of a page, or of one of its sections with everything below its heading."""
    text = page.read_text(encoding="utf-8")
    if section:
        heading = re.search(rf"^(#+) {re.escape(section)}$", text, re.MULTILINE)
        assert heading, f"{page} has no section {section!r}"
        rest = text[heading.end() :]
        # A line of an example can begin as a heading does.
        headings = re.sub(r"^```.*?^```$", lambda block: "." * len(block[0]), rest, flags=re.MULTILINE | re.DOTALL)
        following = re.search(rf"^#{{1,{len(heading[1])}}} ", headings, re.MULTILINE)
        text = rest[: following.start()] if following else rest
    return list(code_blocks(text, "sh"))


class PageRunner:
    """A reader with an empty folder and ``kubectl`` for the guest cluster. Use as an async context manager."""

    def __init__(self, directory: Path, guest: ControlPlane, harvester: ControlPlane) -> None:
        self.directory = directory
        self.guest = guest
        self.harvester = harvester
        self.folder = directory / "empty"
        self.checkout = self.folder / "harvester-ccm"
        self.node = directory / "node"
        self._environment: dict[str, str] = {}
        self._stack = AsyncExitStack()
        self._starter: asyncio.Task[None] | None = None
        self.controller: CcmProcess | None = None

    async def __aenter__(self) -> Self:
        self._prepare()
        async with AsyncExitStack() as stack:
            guest = await stack.enter_async_context(_client(self.guest))
            host = await stack.enter_async_context(_client(self.harvester))
            await stack.enter_async_context(HarvesterEmulator(host, pace=FAST))
            await stack.enter_async_context(EndpointSlices(guest, node=KubeVipOptions().settings.node))
            await stack.enter_async_context(KubeVip(guest, KubeVipOptions()))
            self._stack = stack.pop_all()
        self._starter = asyncio.create_task(self._start_when_wanted())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._starter is not None:
            self._starter.cancel()
        if self.controller is not None:
            self.controller.stop()
        await self._stack.aclose()

    def _prepare(self) -> None:
        programs = self.directory / "bin"
        home = self.directory / "home"
        for folder in (programs, home / "Downloads", home / ".kube", self.folder):
            folder.mkdir(parents=True)
        shutil.copy(self.harvester.admin_kubeconfig, home / "Downloads" / "local.yaml")
        shutil.copy(self.guest.admin_kubeconfig, home / ".kube" / "config")
        self._prepare_node()
        texts = {"kubectl": KUBECTL, "git": GIT, "make": MAKE, "docker": DOCKER, "curl": RECORDER, "ssh": SHELL}
        for name, text in {**texts, "scp": COPIER, "harvester-ccm": OWN}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(stat.S_IRWXU)
        tools = require("kubectl", "helm")
        (programs / "helm").symlink_to(tools["helm"])
        self._environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "WORK": str(self.directory),
            "NODE_FILES": str(self.node),
            "GUEST_URL": self.guest.url,
            "ROOT": str(ROOT),
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "REAL_KUBECTL": str(tools["kubectl"]),
            "REAL_MAKE": shutil.which("make") or "make",
        }

    def _prepare_node(self) -> None:
        """Write the kubeconfigs that the programs of a server node write there, each with its address."""
        text = self.guest.admin_kubeconfig.read_text()
        for path, address in NODE_KUBECONFIGS.items():
            file = self.node / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.replace(self.guest.url, f"https://{address}:6443"))

    @property
    def recorded(self) -> list[str]:
        file = self.directory / "recorded"
        return file.read_text().splitlines() if file.exists() else []

    async def run(self, commands: str, *, changes: Mapping[str, str] | None = None) -> str:
        """Run an example and return its output; its folder and what it exports hold for the next one.

        ``changes``: names in capital letters that the reader replaces. Raises AssertionError if a command fails.
        """
        for name, value in (changes or {}).items():
            commands = commands.replace(name, value)
        exported = self.directory / "exported"
        exported.touch()
        folder = self.directory / "folder"
        script = f"source {exported}\n{commands}\nexport -p > {exported}\npwd > {folder}\n"
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", script),
            cwd=folder.read_text().strip() if folder.exists() else self.folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(BLOCK_SECONDS):
            output, _ = await process.communicate()
        text = output.decode(errors="replace")
        assert process.returncode == 0, f"exit code {process.returncode}:\n{commands}\n{text}{self._log()}"
        return text

    def _log(self) -> str:
        return "" if self.controller is None else self.controller.log[-3000:]

    def edit_pool(self) -> None:
        """Choose addresses for ``out/ippool.yaml``, as the page asks for."""
        file = self.checkout / "out" / "ippool.yaml"
        pool = yaml.safe_load(file.read_text())
        pool["spec"]["ranges"] = [
            {
                "subnet": f"{ADDRESSES}.0/24",
                "rangeStart": f"{ADDRESSES}.10",
                "rangeEnd": f"{ADDRESSES}.20",
                "gateway": f"{ADDRESSES}.1",
            }
        ]
        file.write_text(yaml.safe_dump(pool))

    async def install_manifest(self, manifest: Path) -> None:
        """Do what RKE2 and K3s do with a file in their folder of manifests: apply it, and install its HelmChart."""
        self._unpack(manifest)
        await self.run(
            'kubectl apply -f "$WORK/secret.yaml"\n'
            f'helm upgrade --install {RELEASE} "$WORK/chart.tgz" --namespace kube-system --values "$WORK/values.yaml"'
        )

    def _unpack(self, manifest: Path) -> None:
        secret, chart = yaml.safe_load_all(manifest.read_text())
        (self.directory / "secret.yaml").write_text(yaml.safe_dump(secret))
        (self.directory / "chart.tgz").write_bytes(base64.b64decode(chart["spec"]["chartContent"]))
        (self.directory / "values.yaml").write_text(chart["spec"]["valuesContent"])

    async def _start_when_wanted(self) -> None:
        while not (self.directory / "wanted").exists():  # noqa: ASYNC110 - written by another process
            await asyncio.sleep(0.1)
        deployment = self.guest.admin.request("GET", DEPLOYMENT)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        flags = self._flags_of(container)
        cloud_config = self.node / "etc/kubernetes/cloud-config"
        secret = self.guest.admin.get_or_none(SECRET)
        if secret is not None:
            cloud_config = self.directory / "cloud-config"
            cloud_config.write_bytes(base64.b64decode(secret["data"]["cloud-config"]))
        kubeconfig = self.guest.kubeconfig_for_service_account(
            NAMESPACE, RELEASE, context_namespace=NAMESPACE, expiration_seconds=30 * 86400
        )
        self.controller = CcmProcess.start(
            self.directory, cloud_config=cloud_config, kubeconfig=kubeconfig, flags=flags
        )
        words = {"cloud-config": str(cloud_config), "kubeconfig": str(kubeconfig), **flags}
        (self.directory / "flags").write_text("\n".join(f"--{name}={value}" for name, value in words.items()))
        while "became leader" not in self.controller.log:  # noqa: ASYNC110 - written by another process
            await asyncio.sleep(0.1)
        (self.directory / "log").write_text(self.controller.log)
        (self.directory / "started").touch()

    @staticmethod
    def _flags_of(container: Json) -> dict[str, str]:
        words: list[str] = container["args"]
        flags = dict(word.removeprefix("--").split("=", 1) for word in words)
        assert flags.pop("cloud-config") == "/etc/kubernetes/cloud-config"
        return flags


def _client(plane: ControlPlane) -> ApiClient:
    return ApiClient(load_credentials(plane.admin_kubeconfig), cluster=plane.name)
