"""Whose Service it is: ours by class or by default, or another controller's, which is not written to at all."""

from __future__ import annotations

import pytest

from devenv.stage import Stage
from harvester_ccm.names import PRIMARY_SERVICE, SERVICE_FINALIZER, Reason
from tests.e2e.observing import caught_up, writes

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("lan")]

MARKS: dict[str, dict[str, object]] = {
    "metallb": {"annotations": {"metallb.io/address-pool": "lan"}},
    "old-metallb": {"annotations": {"metallb.universe.tf/loadBalancerIPs": "10.0.0.9"}},
    "cilium": {"annotations": {"io.cilium/lb-ipam-ips": "10.0.0.8"}},
    "cilium-too": {"annotations": {"lbipam.cilium.io/ips": "10.0.0.7"}},
    "kube-vip": {"labels": {"implementation": "kube-vip"}, "finalizers": [SERVICE_FINALIZER]},
}
"""What other controllers, or their users, put on Services."""


async def create_foreign(stage: Stage) -> list[str]:
    """Create Services that are others' and return their names."""
    await stage.create_service("classed", spec={"loadBalancerClass": "example.com/other"})
    for name, metadata in MARKS.items():
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }
        stage.scene.guest.apply(body)
    return ["classed", *MARKS]


async def versions(stage: Stage, names: list[str]) -> dict[str, str]:
    """Return the versions of Services: any write of anybody changes them."""
    found = {name: await stage.service(name) for name in names}
    return {name: service.metadata.resource_version for name, service in found.items() if service is not None}


async def test_services_of_others_are_never_written(stage: Stage) -> None:
    run = stage.run(proxied=True)
    await stage.logged(run, "became leader")
    names = await create_foreign(stage)
    await stage.create_service("sharing", annotations={PRIMARY_SERVICE: "default/metallb"})
    told = await stage.hears("sharing", Reason.SHARING_REJECTED)
    assert "default/metallb has no load balancer of Harvester" in told.message
    before = await versions(stage, names)

    for name in names:
        await stage.change_service(name, {"metadata": {"labels": {"touched": "yes"}}})
    await caught_up(stage)
    assert writes(stage.guest_proxy, f"/services/({'|'.join(names)})(/|$)") == []
    await delete_and_check(stage, names, before)


async def delete_and_check(stage: Stage, names: list[str], before: dict[str, str]) -> None:
    """Check that Services can be deleted without the program, and one with a finalizer is not let go by it."""
    assert before.keys() == set(names)
    assert await stage.load_balancers() == ()
    for name in names:
        if name in MARKS:
            assert "belongs to another load balancer" in (await stage.hears(name, Reason.MANAGED_BY_OTHER)).message
        assert len(await stage.told(name)) == (name in MARKS)
        await stage.delete_service(name)
    await stage.gone(*(name for name in names if name != "kube-vip"))
    await caught_up(stage)
    left = await stage.service("kube-vip")
    assert left is not None
    assert left.metadata.finalizers == (SERVICE_FINALIZER,)
