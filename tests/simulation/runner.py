"""Runs the actions of a scenario."""

from collections.abc import Mapping, Sequence
from typing import Any

from devenv.harvester.admission import Refusal
from harvester_ccm.kube.errors import KubeError, Unreachable
from harvester_ccm.kube.informer import SILENCE_SECONDS
from tests.simulation.actions import Action
from tests.simulation.announcing import Announcing
from tests.simulation.interruptions import Interruptions
from tests.simulation.machines import MACHINES
from tests.simulation.network import NetworkFault
from tests.simulation.other_clients import FOREIGN_FINALIZER, OtherClients
from tests.simulation.requesting import Requesting
from tests.simulation.reshaping import Reshaping


class ActionRunner(OtherClients, Reshaping, Interruptions, Announcing, Requesting):
    """Runs the actions of users and administrators, and faults; each verb of a scenario is a method."""

    def do(self, action: Action) -> None:
        """Run an action; a rejected request of a user has no effect."""
        self._world.actions += 1
        if "name" in action.more:
            self._guest.last_action[action.more["name"]] = self._world.loop.time()
        try:
            getattr(self, action.verb)(**action.more)
        except Refusal:
            self._world.met[f"{action.verb} refused by the webhook"] += 1
        except KubeError:
            return

    def calm(self) -> None:
        """End all faults."""
        world = self._world
        for network in world.networks.values():
            network.clear()
        for process in world.processes.values():
            process.go_on()
        world.processes["p"].start()
        if "c" in world.processes:
            world.processes["c"].start()
        world.controllers.start()
        for guest in world.guests:
            guest.kube_vip.stop_dhcp(0.0)
            guest.release(FOREIGN_FINALIZER)
        for name in MACHINES:
            world.machines.report(name)
            world.machines.say_ready(name, ready=world.machines.runs(name))

    # Users.

    def create(self, name: str, ports: Sequence[Any], annotations: Mapping[str, str]) -> None:
        self._guest.create_service(name, {"type": "LoadBalancer", "ports": list(ports)}, annotations)

    def delete(self, name: str) -> None:
        self._guest.delete_service(name)

    def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        self._guest.change_service(name, {"metadata": {"annotations": dict(annotations)}})

    def retype(self, name: str, type: str) -> None:
        """Change the type. An API server clears the status of a Service that gets another type than LoadBalancer."""
        cleared = {} if type == "LoadBalancer" else {"status": {"loadBalancer": None}}
        self._guest.change_service(name, {"spec": {"type": type}, **cleared})

    def change_ports(self, name: str, ports: Sequence[Any]) -> None:
        self._guest.change_service(name, {"spec": {"ports": list(ports)}})

    def clear_status(self, name: str) -> None:
        """Take the address out of the status."""
        self._guest.change_service(name, {"status": {"loadBalancer": None}})

    def delete_balancer(self, name: str) -> None:
        """Delete a load balancer in Harvester."""
        self._guest.delete_balancer(name)

    # Administrators of Harvester.

    def resize_pool(self, by: int) -> None:
        """Give the pool more addresses, or fewer."""
        self._world.pools.resize(by)
        self._world.met["pool grown" if by > 0 else "pool shrunk"] += 1

    def move_pool(self) -> None:
        self._world.pools.move()
        self._world.met["pool of other addresses"] += 1

    def open_pool(self, to_everybody: bool) -> None:
        """Let the pool serve everybody, or others than us."""
        self._world.pools.open(to_everybody=to_everybody)
        self._world.met["pool opened" if to_everybody else "pool closed to us"] += 1

    def delete_pool(self, name: str) -> None:
        self._world.pools.delete(name)
        self._world.met["pool deleted"] += 1

    def make_pool(self, name: str) -> None:
        self._world.pools.make(name)
        self._world.met["pool made later"] += 1

    # VMs.

    def boot(self, name: str) -> None:
        """Make and start a VM, which joins."""
        self._world.machines.boot(name)

    def boot_without_agent(self, name: str) -> None:
        """Create and start a VM whose guest agent does not report."""
        self._world.machines.boot(name, reports=False)

    def halt_machine(self, name: str) -> None:
        """Switch a VM off."""
        self._world.machines.halt(name)

    def destroy(self, name: str) -> None:
        """Delete a VM."""
        self._world.machines.destroy(name)

    def move(self, name: str) -> None:
        """Migrate a VM to another zone."""
        self._world.machines.report(name, zone=f"zone-{self._world.dice.randint(1, 3)}")

    def agent_away(self, name: str) -> None:
        """Let the guest agent of a VM fall silent."""
        self._world.machines.report(name, agent=False)

    def agent_back(self, name: str) -> None:
        """Let the guest agent of a VM speak again."""
        self._world.machines.report(name)

    def kubelet_away(self, name: str) -> None:
        """Let a Node count as not ready though its VM runs."""
        self._world.machines.say_ready(name, ready=False)

    # Faults.

    def clone(self) -> None:
        """Let a copy of the guest run beside it, once."""
        if self._world.clone_of_guest is None:
            self._world.clone()
            self._world.met["guest cloned"] += 1

    def in_clone(self, verb: str, **more: Any) -> None:
        """Let a user of the copy do something, if there is one."""
        if self._world.clone_of_guest is not None:
            ActionRunner(self._world, self._world.clone_of_guest).do(Action(0.0, verb, more))

    def wait(self) -> None:
        """Let time pass."""

    def kill(self, after_steps: int) -> None:
        """Kill the controller, at once or some callbacks later."""
        world, loop = self._world, self._world.loop
        process = next((one for one in world.processes.values() if one.running), None)
        if process is None:
            return
        at, run = loop.steps + after_steps, process.running
        world.disturb()

        def strike() -> None:
            if process.running != run:
                return
            if loop.steps < at:
                loop.call_soon(strike)
                return
            process.kill()
            world.met["killed" if after_steps == 0 else "killed at some callback"] += 1
            loop.call_later(0.5, process.start)

        strike()

    def stop(self) -> None:
        """Send SIGTERM to the controllers."""
        self._world.disturb()
        for process in self._world.processes.values():
            self._world.met["stopped"] += process.stop()

    def halt(self, seconds: float) -> None:
        """Suspend the controller for a while."""
        process = next((one for one in self._world.processes.values() if one.running), None)
        if process is not None:
            process.halt()
            self._world.disturb(seconds)
            self._world.met["suspended"] += 1
            # A program that is suspended during the outage of a restore does not notice it.
            restoring = self._world.loop.time() < self._world.restoring_until
            self._world.met["restored while the program was suspended"] += restoring
            self._world.loop.call_later(seconds, process.go_on)

    def rival(self) -> None:
        """Start a second candidate."""
        self._world.met["second candidate"] += not self._world.processes["q"].running
        self._world.processes["q"].start()

    def network_fault(self, side: str, kind: str, seconds: float, share: float, of: str) -> None:
        """Let requests go wrong for a while."""
        until = self._world.loop.time() + seconds
        self._world.disturb(seconds)
        self._world.networks[side].active.append(NetworkFault(kind, until, share, of))

    def cut_watches(self, side: str, how: str) -> None:
        """End all watches, or let them fall silent."""
        server = self._world.servers[side]
        self._world.disturb(SILENCE_SECONDS if how == "silent" else 0.0)
        self._world.met[f"watches {how}"] += len(server.watches)
        if how == "silent":
            for watch in server.watches:
                watch.silent = True
        else:
            server.break_watches(Unreachable("connection broken") if how == "broken" else None)

    def compact(self, side: str) -> None:
        """Forget all versions but the present, and end all watches."""
        self._world.met["versions forgotten"] += 1
        self._world.disturb()
        self._world.servers[side].compact()
        self._world.servers[side].break_watches()

    def restore(self, side: str, back: float, away: float) -> None:
        """Restore an older backup of one side."""
        world = self._world
        if world.restore(side, back, away):
            world.met[f"{side} restored"] += 1
            world.met["restored while the program was suspended"] += any(
                one.is_halted for one in world.processes.values()
            )

    def restart_kube_vip(self) -> None:
        self._world.kube_vip.restart()
        self._world.met["kube-vip restarted"] += 1

    def stop_dhcp(self, seconds: float) -> None:
        """Let the DHCP server of the nodes' network answer late."""
        self._world.kube_vip.stop_dhcp(seconds)

    def stop_controllers(self, seconds: float) -> None:
        """Let Harvester's controllers be away for a while."""
        self._world.met["Harvester's controllers away"] += self._world.controllers.running
        self._world.controllers.stop()
        self._world.loop.call_later(seconds, self._world.controllers.start)
