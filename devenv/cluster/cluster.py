"""The guest cluster with its nodes, Harvester and a client in another network; and what an operator does with them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from devenv.cluster import layout, network, traffic
from devenv.cluster.builds import CHECKOUT, COREDNS_IMAGE
from devenv.cluster.controlplane import ControlPlane, ServerPlace
from devenv.cluster.harvester import Harvester
from devenv.cluster.network import run_tool
from devenv.cluster.nodes import Node, tool
from devenv.cluster.setup import Setup
from devenv.helm import run_helm
from devenv.process import ChildProcess, DevenvError
from devenv.restclient import Json

GUEST: Final = ServerPlace("guest", layout.GUEST, layout.SERVICE_NETWORK, "10.43.0.1", 2379)
HARVESTER: Final = ServerPlace("harvester", layout.HARVESTER, layout.HARVESTER_SERVICE_NETWORK, "10.53.0.1", 2389)
NAMESPACE: Final = "kube-system"
"""Namespace of the controller and kube-vip."""
CONTROLLER: Final = "harvester-cloud-provider"
"""Beginning of the names of the controller's pods, and their label."""
STEP_SECONDS: Final = 180.0
"""Timeout of each wait of an operator."""
POLL_SECONDS: Final = 0.3
HERE: Final = Path(__file__).parent

T = TypeVar("T")


def until(condition: Callable[[], T | None], what: Callable[[], str] | str) -> T:
    """Return the value of a condition once it is true. Raises DevenvError that says what was missing."""
    end = time.monotonic() + STEP_SECONDS
    while not (value := condition()):
        if time.monotonic() > end:
            missing = what if isinstance(what, str) else what()
            raise DevenvError(f"not within {STEP_SECONDS:.0f} s: {missing}")
        time.sleep(POLL_SECONDS)
    return value


class Cluster:
    """All parts. ``start`` starts them; the end of the capsule ends them."""

    def __init__(self, setup: Setup) -> None:
        """Nothing is started."""
        self.setup = setup
        self.guest = ControlPlane(GUEST, setup)
        self.harvester = Harvester(ControlPlane(HARVESTER, setup), setup)
        self.nodes = [Node(place, setup, self.guest) for place in layout.NODES]
        self._client: ChildProcess | None = None

    def start(self) -> None:
        """Start everything but the controller and kube-vip. Raises DevenvError."""
        network.make_router()
        self._start_client()
        with ThreadPoolExecutor(len(self.nodes) + 1) as pool:
            planes = [pool.submit(self.harvester.plane.start), pool.submit(self.guest.start, schedules=True)]
            for started in planes:
                started.result()
            others = [pool.submit(self.harvester.start), *(pool.submit(node.start) for node in self.nodes)]
            for ready in others:
                ready.result()
        for node in self.nodes:
            network.route_pods(None, node.place)
            if node.place.is_control_plane:
                label = {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "true"}}}
                self.guest.admin.request("PATCH", f"/api/v1/nodes/{node.place.name}", body=label)
        self.kubectl("apply", "-f", "-", stdin=self._manifest("coredns", IMAGE=COREDNS_IMAGE, ADDRESS=layout.DNS))
        self._start_dhcp_server()

    def kubectl(self, *words: str | Path, stdin: str | None = None) -> str:
        """Run kubectl as administrator of the guest cluster and return its output. Raises DevenvError."""
        program = self.setup.programs["kubectl"]
        return run_tool(program, f"--kubeconfig={self.guest.kubeconfig}", *words, stdin=stdin)

    def helm(self, *words: str | Path) -> str:
        """Run Helm as administrator of the guest cluster and return its output. Raises DevenvError."""
        return run_helm(*words, f"--namespace={NAMESPACE}", kubeconfig=self.guest.kubeconfig)

    def harvester_script(self, *words: str) -> str:
        """Run ``generate_addon.sh`` as Harvester's administrator and return its output. Raises DevenvError."""
        folder = Path(self.setup.programs["kubectl"]).parent
        environment = os.environ | {
            "KUBECONFIG": str(self.harvester.plane.kubeconfig),
            "PATH": f"{folder}:{os.environ['PATH']}",
        }
        command: list[str | Path] = [CHECKOUT / "deploy" / "generate_addon.sh", *words]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise DevenvError(f"generate_addon.sh {' '.join(words)} failed: {done.stderr.strip()}")
        return done.stdout

    def apply_web(self) -> None:
        """Create two web servers."""
        self.kubectl("apply", "-f", "-", stdin=self._manifest("web", IMAGE=self.setup.agnhost))

    def create_service(self, name: str, annotations: dict[str, str] | None = None) -> None:
        """Create a Service of type LoadBalancer for the web servers."""
        body = {
            "metadata": {"name": name, "annotations": annotations or {}},
            "spec": {
                "type": "LoadBalancer",
                "selector": {"app": "web"},
                "ports": [{"name": "http", "port": 80}],
            },
        }
        self.guest.admin.request("POST", "/api/v1/namespaces/default/services", body=body)

    def delete_services(self, *names: str) -> None:
        """Delete Services and wait until they are gone."""
        self.kubectl("delete", "service", *names, "--ignore-not-found", f"--timeout={STEP_SECONDS:.0f}s")

    def address(self, name: str) -> str:
        """Return the address of a Service once it has one."""

        def found() -> str:
            ingress = self.service(name).get("status", {}).get("loadBalancer", {}).get("ingress") or [{}]
            return str(ingress[0].get("ip", ""))

        return until(found, lambda: f"address of Service {name}. {self.warnings(name)}")

    def service(self, name: str) -> Json:
        """Return a Service in the namespace ``default``."""
        return self.guest.admin.request("GET", f"/api/v1/namespaces/default/services/{name}")

    def warnings(self, name: str) -> str:
        """Return the Warning Events of an object with this name."""
        selector = f"fieldSelector=involvedObject.name={name},type=Warning"
        events = self.guest.admin.request("GET", f"/api/v1/namespaces/default/events?{selector}")["items"]
        return " ".join(f"{event['reason']}: {event['message']}" for event in events)

    def curl(self, address: str) -> str:
        """Return the name of the pod that answers a request from the clients' network, once one answers."""
        command = (*self.entering_client(), *self._entering_files(), "curl", "--silent", "--max-time", "2")

        def answer() -> str:
            request = [*command, f"http://{address}/hostname"]
            done = subprocess.run(request, check=False, capture_output=True, text=True)
            return done.stdout if done.returncode == 0 else ""

        return until(answer, f"answer of {address}")

    def entering_client(self) -> tuple[str, ...]:
        """Return the words before a command that runs in the clients' network."""
        assert self._client is not None, "the client is not started"
        return (tool("nsenter"), f"--target={self._client.pid}", "--net", "--")

    def start_traffic(self, address: str) -> "Traffic":
        """Start to send requests from the clients' network. They end at the latest with the capsule."""
        result = self.setup.work / "traffic.json"
        command: list[str | Path] = [*self.entering_client(), sys.executable, "-I", "-S", traffic.__file__]
        command += [f"http://{address}/", result]
        child = ChildProcess.start("traffic", command, log_file=self.setup.out / "traffic.log")
        return Traffic(child, result)

    def controller_pods(self) -> list[Json]:
        """Return the pods of the controller that are not being deleted."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/name={CONTROLLER}"
        pods = self.guest.admin.request("GET", path)["items"]
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def save_logs(self, label: str) -> str:
        """Write the logs of the controller and kube-vip to files, and return those of the controller."""
        logs = ""
        for pod in self.release_pods():
            text = self.kubectl("logs", f"--namespace={NAMESPACE}", pod, "--ignore-errors")
            (self.setup.out / f"{pod}-{label}.log").write_text(text)
            if pod.startswith(CONTROLLER):
                logs += text
        return logs

    def release_pods(self) -> list[str]:
        """Return the names of the pods of the controller and kube-vip, also while they end."""
        pods = self.guest.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        names = [pod["metadata"]["name"] for pod in pods]
        return [name for name in names if name.startswith((CONTROLLER, "kube-vip"))]

    def _start_client(self) -> None:
        log_file = self.setup.out / "client.log"
        unshare = [tool("unshare"), "--net", tool("sleep"), "infinity"]
        self._client = ChildProcess.start("client", unshare, log_file=log_file)
        own = os.readlink("/proc/self/ns/net")
        until(lambda: os.readlink(f"/proc/{self._client_pid()}/ns/net") != own, "network of the client")
        network.connect(
            self._client_pid(),
            "client",
            layout.CLIENT,
            bridge=network.CLIENTS_BRIDGE,
            gateway=layout.CLIENT_ROUTER,
        )

    def _client_pid(self) -> int:
        assert self._client is not None, "the client is not started"
        return self._client.pid

    def _entering_files(self) -> Sequence[str]:
        """Return the words before a program of Debian that runs in the present network."""
        return (tool("nsenter"), f"--target={self.nodes[0].pid}", "--mount", "--")

    def _start_dhcp_server(self) -> None:
        """Start a DHCP server in the nodes' network."""
        command = [
            *self._entering_files(),
            *("/usr/sbin/dnsmasq", "--no-daemon", "--user=root", "--port=0", "--log-dhcp", "--leasefile-ro"),
            *(f"--interface={network.NODES_BRIDGE}", "--bind-interfaces", f"--dhcp-range={','.join(layout.LEASES)},1h"),
        ]
        ChildProcess.start("dhcp-server", command, log_file=self.setup.out / "dhcp-server.log")

    def _manifest(self, name: str, **replaced: str) -> str:
        text = (HERE / f"{name}.yaml").read_text()
        for placeholder, value in replaced.items():
            text = text.replace(f" {placeholder}\n", f" {value}\n")
        return text


class Traffic:
    """Requests of a client, which run until ``stop``."""

    def __init__(self, child: ChildProcess, result: Path) -> None:
        """``result`` is the file that the process writes at its end."""
        self._child = child
        self._result = result

    def stop(self) -> "Answers":
        """Stop them and return how many were answered."""
        self._child.stop(grace=3 * traffic.ANSWER_SECONDS)
        return Answers(**json.loads(self._result.read_text()))


@dataclass(frozen=True)
class Answers:
    """Numbers of requests and answers, and the longest time between two answers in seconds."""

    asked: int
    answered: int
    longest: float

    def __str__(self) -> str:
        return f"{self.answered} of {self.asked} requests answered, longest pause {self.longest:.1f} s"
