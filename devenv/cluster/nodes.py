"""The nodes: containerd, kubelet and kube-proxy in namespaces of their own, on the file system that ``builds`` made."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from devenv.cluster import layout, network, nodespace
from devenv.cluster.builds import PAUSE
from devenv.cluster.controlplane import ControlPlane
from devenv.cluster.layout import NodePlace
from devenv.cluster.setup import Setup
from devenv.process import ChildProcess, DevenvError, require_running
from devenv.restclient import wait_until

START_SECONDS: Final = 120.0
PROGRAMS: Final = ("kubelet", "kube-proxy")
CONTAINERD: Final = "/usr/bin/containerd"
CONTROL: Final = ("/usr/bin/ctr", "--namespace=k8s.io")
SOCKET: Final = "/run/containerd/containerd.sock"
IMAGES: Final = "/images"
FILES: Final = "/etc/node"
"""Directory of the configuration of all programs."""
CREDENTIAL_FILE: Final = "var/lib/rancher/rke2/etc/config-files/cloud-provider-config"
"""Where Rancher writes the cloud-config on a node: the chart's default."""
ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}


class Node:
    """One node."""

    def __init__(self, place: NodePlace, setup: Setup, guest: ControlPlane) -> None:
        """Nothing is started."""
        self.place = place
        self.directory = setup.work / place.short
        self._setup = setup
        self._guest = guest
        self._holder: ChildProcess | None = None
        self._children: list[ChildProcess] = []

    @property
    def pid(self) -> int:
        """The process whose namespaces are those of the node."""
        assert self._holder is not None, "the node is not started"
        return self._holder.pid

    def start(self) -> None:
        """Start everything, and return once the Node is registered. Raises DevenvError."""
        self._start_namespaces()
        network.connect(
            self.pid, self.place.short, self.place.address, bridge=network.NODES_BRIDGE, gateway=layout.ROUTER
        )
        for other in layout.NODES:
            if other != self.place:
                network.route_pods(self.pid, other)
        self._run("containerd", [CONTAINERD, f"--config={FILES}/containerd.toml"])
        self._await(lambda: self._control("version").returncode == 0, "containerd")
        for archive in self._setup.archives:
            self._import(archive)
        kubelet = [f"--config={FILES}/kubelet.yaml", f"--kubeconfig={FILES}/kubelet.kubeconfig"]
        kubelet += ["--cloud-provider=external"]
        if self.place.has_node_ip:
            kubelet += [f"--node-ip={self.place.address}"]
        self._run("kubelet", ["/usr/local/bin/kubelet", *kubelet])
        self._run("kube-proxy", ["/usr/local/bin/kube-proxy", f"--config={FILES}/kube-proxy.yaml"])
        path = f"/api/v1/nodes/{self.place.name}"
        self._await(lambda: self._guest.admin.get_or_none(path) is not None, "registration")

    def stop_kubelet(self) -> None:
        """Stop the kubelet, as the end of the VM does. Containers and namespaces stay."""
        (kubelet,) = (child for child in self._children if child.name == self._full_name("kubelet"))
        kubelet.stop()

    def write_credential(self, cloud_config: Path) -> None:
        """Write a cloud-config on the disk of the node, readable for root only, as Rancher does."""
        target = Path(f"/proc/{self.pid}/root", CREDENTIAL_FILE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(cloud_config.read_bytes())

    def delete_credential(self) -> None:
        """Delete the cloud-config from the disk of the node."""
        Path(f"/proc/{self.pid}/root", CREDENTIAL_FILE).unlink()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command on the node and return its result."""
        words = [*self._entering(), *command]
        return subprocess.run(words, check=False, capture_output=True, text=True, env=ENVIRONMENT)

    def addresses(self) -> set[str]:
        """Return the IPv4 addresses on the node's devices."""
        devices = json.loads(self.run("ip", "-json", "-4", "address").stdout)
        return {address["local"] for device in devices for address in device["addr_info"]}

    def _start_namespaces(self) -> None:
        self.directory.mkdir(parents=True)
        space = self.directory / "space.json"
        space.write_text(json.dumps(self._space()))
        holder: list[str | Path] = [tool("unshare"), "--mount", "--net", "--uts"]
        holder += [sys.executable, "-I", "-S", nodespace.__file__, space]
        name = f"{self.place.short}-namespaces"
        self._holder = ChildProcess.start(name, holder, log_file=self._setup.out / f"{name}.log", env=ENVIRONMENT)
        self._children.append(self._holder)
        self._await((self.directory / nodespace.READY).exists, "mounts")

    def _space(self) -> dict[str, Any]:
        """Return what ``nodespace`` reads."""
        shown = {self._setup.programs[name]: f"/usr/local/bin/{name}" for name in PROGRAMS}
        shown |= {path: f"{IMAGES}/{name}" for name, path in self._setup.archives.items()}
        # The layers of containers cannot be on the file system of the node, which has layers itself.
        for name in ("containerd", "kubelet"):
            data = self.directory / name
            data.mkdir()
            shown[str(data)] = f"/var/lib/{name}"
        return {
            "name": self.place.name,
            "directory": str(self.directory),
            "root": str(self._setup.root),
            "system_uuid": self.place.machine.system_uuid,
            "shown": shown,
            "texts": self._texts(),
        }

    def _texts(self) -> dict[str, str]:
        """Return the text files of the node by path."""
        short = self.place.short
        user = f"system:node:{self.place.name}"
        node = self._guest.client_kubeconfig(f"{short}-kubelet", user, groups=("system:nodes",))
        proxy = self._guest.client_kubeconfig(f"{short}-kube-proxy", "system:kube-proxy")
        return {
            "/etc/hostname": f"{self.place.name}\n",
            "/etc/hosts": f"127.0.0.1 localhost\n{self.place.address} {self.place.name}\n",
            "/etc/machine-id": self.place.machine.system_uuid.replace("-", "") + "\n",
            # Nothing answers there: names outside of the cluster do not exist.
            "/etc/resolv.conf": f"nameserver {layout.ROUTER}\n",
            "/etc/cni/net.d/10-pods.conflist": json.dumps(_pod_network(self.place)),
            f"{FILES}/ca.crt": self._guest.authority.ca_file.read_text(),
            f"{FILES}/containerd.toml": _containerd(PAUSE),
            # JSON is valid YAML.
            f"{FILES}/kubelet.yaml": json.dumps(_kubelet(self.place)),
            f"{FILES}/kubelet.kubeconfig": node.read_text(),
            f"{FILES}/kube-proxy.yaml": json.dumps(_kube_proxy(self.place)),
            f"{FILES}/kube-proxy.kubeconfig": proxy.read_text(),
        }

    def _entering(self) -> tuple[str, ...]:
        return (tool("nsenter"), f"--target={self.pid}", "--mount", "--net", "--uts", "--")

    def _full_name(self, program: str) -> str:
        return f"{self.place.short}-{program}"

    def _run(self, name: str, command: Sequence[str]) -> None:
        full = self._full_name(name)
        child = ChildProcess.start(
            full, [*self._entering(), *command], log_file=self._setup.out / f"{full}.log", env=ENVIRONMENT
        )
        self._children.append(child)

    def _control(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run(*CONTROL, *words)

    def _import(self, archive: str) -> None:
        done = self._control("images", "import", f"{IMAGES}/{archive}")
        if done.returncode != 0:
            raise DevenvError(f"{self.place.name} cannot import {archive}: {done.stderr.strip()}")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        def holds() -> bool:
            require_running(self._children)
            return condition()

        wait_until(holds, seconds=START_SECONDS, what=f"{what} of {self.place.name}")


def tool(name: str) -> str:
    """Return the path of a program of the machine."""
    path = shutil.which(name)
    assert path is not None, f"{name} is not on PATH"
    return path


def _pod_network(place: NodePlace) -> dict[str, Any]:
    """Return the configuration of the pod network: a route to each pod, without a bridge."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": place.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugins: list[dict[str, Any]] = [
        {"type": "ptp", "ipMasq": False, "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    ]
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}


def _containerd(pause: str) -> str:
    return f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  # Some machines forbid values below that of the parent.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
"""


def _kubelet(place: NodePlace) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": place.control_group,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{FILES}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "resolvConf": "/etc/resolv.conf",
        "clusterDNS": [layout.DNS],
        "clusterDomain": "cluster.local",
        # The disk of the machine is not that of the cluster.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "failSwapOn": False,
        "serializeImagePulls": False,
        # A changed Secret is in its volume after this time. The default is a minute.
        "syncFrequency": "5s",
    }


def _kube_proxy(place: NodePlace) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": layout.POD_NETWORK,
        "hostnameOverride": place.name,
        "clientConnection": {"kubeconfig": f"{FILES}/kube-proxy.kubeconfig"},
        # Limits of the whole machine, which cannot be changed here.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }
