"""The permission to request addresses: what ``generate_addon.sh --address-pools`` grants on a real API server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from devenv.apiserver import ControlPlane
from devenv.restclient import Json, RefusedError, RestClient, status_of, wait_until
from harvester_ccm.controllers.address_pools import AddressPools
from harvester_ccm.controllers.caches import Caches
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.errors import AdmissionDenied, Conflict, Forbidden, Invalid
from harvester_ccm.plan.service.allocation.address_pools import PoolRights
from harvester_ccm.plan.service.desired import SeedPool
from tests.deploy.test_generate_addon import HAS_DONE, IS_REFUSED, Addon, client_of, sections
from tests.support.builders import CLUSTER

pytestmark = pytest.mark.apiserver
POOLS: Final = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools"
RIGHTS: Final = "harvester-ccm-address-pools.tenant-a.prod"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
GRANTED: Final = (
    f"{RBAC}/clusterroles/{RIGHTS}",
    f"{RBAC}/clusterrolebindings/{RIGHTS}",
    f"{ADMISSION}/validatingadmissionpolicies/{RIGHTS}",
    f"{ADMISSION}/validatingadmissionpolicybindings/{RIGHTS}",
)


def pool(name: str, third: int, *namespaces: str) -> Json:
    """Return a pool with two entries in its history, one of each tenant, and one allocated address of the other."""
    scope = [{"project": "*", "namespace": namespace, "guestCluster": "*"} for namespace in namespaces]
    return {
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1",
        "kind": "IPPool",
        "metadata": {"name": name, "labels": {"a": "b"}},
        "spec": {"ranges": [{"subnet": f"10.0.{third}.0/24"}, {"subnet": "fd00::/64"}], "selector": {"scope": scope}},
        "status": {
            "allocated": {f"10.0.{third}.7": "tenant-ab/web"},
            "allocatedHistory": {f"10.0.{third}.8": "tenant-ab/old", f"10.0.{third}.9": "tenant-a/old"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "available": 252,
            "lastAllocated": f"10.0.{third}.9",
            "total": 253,
        },
    }


@pytest.fixture(scope="module")
def pools(harvester: ControlPlane) -> Iterator[ControlPlane]:
    """Harvester with a pool of tenant-a alone, one of both tenants, and one without a scope."""
    harvester.apply(
        pool("lan", 1, "tenant-a", "tenant-a"),
        pool("dmz", 2, "tenant-a", "tenant-b"),
        pool("all", 3, "*"),
        pool("none", 4),
    )
    yield harvester
    harvester.admin.request("DELETE", POOLS)


@pytest.fixture(scope="module")
def account_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the kubeconfig of the account."""
    return tmp_path_factory.mktemp("account")


@pytest.fixture(scope="module")
def account(pools: ControlPlane, account_directory: Path) -> Iterator[RestClient]:
    """The account of a cluster that may request addresses of pool lan, when policy and permission are in force."""
    addon = Addon(pools, account_directory)
    output, messages = addon.run("--address-pools", "lan", "prod", "tenant-a")
    assert "can request free addresses of IP pools lan, also ones that another load balancer" in messages
    assert "the account can change nothing but that" in messages
    client = client_of(sections(output)[0], account_directory)
    wait_until(lambda: status_of(client, "GET", f"{POOLS}/lan") == 200, seconds=30, what="permission")
    forbidden = {"spec": {"description": "is the policy in force?"}}
    wait_until(lambda: status_of(client, "PATCH", f"{POOLS}/lan", forbidden) == 422, seconds=30, what="policy")
    yield client
    addon.run("--delete", "prod", "tenant-a")


@pytest.fixture
async def client(account: RestClient, account_directory: Path) -> AsyncIterator[ApiClient]:
    """The controller's client with the credential of the account."""
    async with ApiClient(load_credentials(account_directory / "kubeconfig"), cluster="harvester") as one:
        yield one


def caches_of(client: ApiClient) -> Caches:
    return Caches(client, client, CLUSTER)


@pytest.mark.security("With `--address-pools`, the account can also request free addresses of single IP pools")
def test_address_is_requested_with_a_patch_of_one_entry(account: RestClient) -> None:
    version = account.request("GET", f"{POOLS}/lan")["metadata"]["resourceVersion"]
    body = {"metadata": {"resourceVersion": version}, "status": {"allocatedHistory": {"10.0.1.20": "tenant-a/web"}}}
    changed = account.request("PATCH", f"{POOLS}/lan", body=body)
    assert changed["status"]["allocatedHistory"]["10.0.1.20"] == "tenant-a/web"
    assert status_of(account, "PATCH", f"{POOLS}/lan", body) == 409, "the version is another one now"
    again = {"status": {"allocatedHistory": {"10.0.1.20": "tenant-a/api"}}}
    assert status_of(account, "PATCH", f"{POOLS}/lan", again) == 200
    removed = {"status": {"allocatedHistory": {"10.0.1.20": None, "10.0.1.9": None}}}
    assert status_of(account, "PATCH", f"{POOLS}/lan", removed) == 200


HISTORY_DENIED: Final = "only entries of load balancers in namespace tenant-a"
NOT_IN_THE_POOL: Final = "only addresses in the ranges of the IP pool"
DENIED: dict[str, tuple[Json, str]] = {
    "an allocated address": ({"status": {"allocated": {"10.0.1.30": "tenant-a/web"}}}, "allocatedHistory only"),
    "no allocated address": ({"status": {"allocated": None}}, "allocatedHistory only"),
    "another number": ({"status": {"total": 1}}, "allocatedHistory only"),
    "no status": ({"status": None}, "allocatedHistory only"),
    "ranges": ({"spec": {"ranges": [{"subnet": "10.9.0.0/24"}]}}, "status.allocatedHistory of an IP pool only"),
    "scope": ({"spec": {"selector": None}}, "status.allocatedHistory of an IP pool only"),
    "a label": ({"metadata": {"labels": {"a": "c"}}}, "may not change the metadata"),
    "no label": ({"metadata": {"labels": None}}, "may not change the metadata"),
    "a finalizer": ({"metadata": {"finalizers": ["example.com/mine"]}}, "may not change the metadata"),
    "an annotation": (
        {"metadata": {"annotations": {"loadbalancer.harvesterhci.io/manuallyReleaseIP": "10.0.1.7: tenant-b/web"}}},
        "may not change the metadata",
    ),
    "two entries": (
        {"status": {"allocatedHistory": {"10.0.1.30": "tenant-a/web", "10.0.1.31": "tenant-a/web"}}},
        "one entry at a time",
    ),
    "a key that is no address": ({"status": {"allocatedHistory": {"not-an-ip": "tenant-a/web"}}}, NOT_IN_THE_POOL),
    "an empty key": ({"status": {"allocatedHistory": {"": "tenant-a/web"}}}, NOT_IN_THE_POOL),
    "a long key": ({"status": {"allocatedHistory": {"1" * 45_000: "tenant-a/web"}}}, NOT_IN_THE_POOL),
    "an address outside of the pool": ({"status": {"allocatedHistory": {"8.8.8.8": "tenant-a/web"}}}, NOT_IN_THE_POOL),
    "another form of an address": (
        {"status": {"allocatedHistory": {"::ffff:10.0.1.30": "tenant-a/web"}}},
        NOT_IN_THE_POOL,
    ),
    "a long form of an address": ({"status": {"allocatedHistory": {"fd00:0::9": "tenant-a/web"}}}, NOT_IN_THE_POOL),
    "an address that another namespace has": (
        {"status": {"allocatedHistory": {"10.0.1.7": "tenant-a/web"}}},
        "allocated to a load balancer of another namespace",
    ),
    "a long value": (
        {"status": {"allocatedHistory": {"10.0.1.30": f"tenant-a/{'x' * 45_000}"}}},
        HISTORY_DENIED,
    ),
    "a value with a line end": ({"status": {"allocatedHistory": {"10.0.1.30": "tenant-a/web\n"}}}, HISTORY_DENIED),
    "a value with blanks": ({"status": {"allocatedHistory": {"10.0.1.30": "tenant-a/web x"}}}, HISTORY_DENIED),
    "a value without a name": ({"status": {"allocatedHistory": {"10.0.1.30": "tenant-a/"}}}, HISTORY_DENIED),
    "an entry for another namespace": ({"status": {"allocatedHistory": {"10.0.1.30": "tenant-b/web"}}}, HISTORY_DENIED),
    "the entry of another namespace": ({"status": {"allocatedHistory": {"10.0.1.8": "tenant-a/web"}}}, HISTORY_DENIED),
    "no entry of another namespace": ({"status": {"allocatedHistory": {"10.0.1.8": None}}}, HISTORY_DENIED),
    "the whole history": ({"status": {"allocatedHistory": None}}, HISTORY_DENIED),
    "a namespace that begins like this one": (
        {"status": {"allocatedHistory": {"10.0.1.30": "tenant-ab/web"}}},
        HISTORY_DENIED,
    ),
}


@pytest.mark.parametrize(("patch", "message"), DENIED.values(), ids=DENIED)
@pytest.mark.security("A policy denies it every other change of them")
def test_policy_denies_every_other_change(account: RestClient, patch: Json, message: str) -> None:
    before = account.request("GET", f"{POOLS}/lan")
    with pytest.raises(RefusedError) as refusal:
        account.request("PATCH", f"{POOLS}/lan", body=patch)
    assert refusal.value.status == 422
    assert message in str(refusal.value)
    assert account.request("GET", f"{POOLS}/lan") == before


@pytest.mark.parametrize(
    ("pool_name", "owner", "error"),
    [("lan", "tenant-b/web", (AdmissionDenied, Invalid)), ("dmz", "tenant-a/web", (Forbidden,))],
    ids=["denied by the policy", "pool without the permission"],
)
async def test_controller_tells_refusals_from_other_errors(
    client: ApiClient, pool_name: str, owner: str, error: tuple[type[Exception], ...]
) -> None:
    pools = AddressPools(client, caches_of(client))
    with pytest.raises(error):
        await pools.request(SeedPool(pool_name, "", "10.0.1.40", owner))


async def test_controller_requests_an_address_with_these_permissions(client: ApiClient) -> None:
    pools = AddressPools(client, caches_of(client))
    assert await pools.review() == PoolRights(frozenset({"lan"}))
    observed = await pools.read("lan")
    assert observed.pool is not None
    version = observed.pool.metadata.resource_version
    write = SeedPool("lan", version, "10.0.1.41", "tenant-a/web")
    requested = await pools.request(write)
    assert requested.pool is not None
    assert requested.pool.history["10.0.1.41"] == "tenant-a/web"
    with pytest.raises(Conflict):
        await pools.request(write)
    with pytest.raises(Forbidden):
        await pools.read("dmz")


OTHERS: dict[str, tuple[str, str]] = {
    "read another pool": ("GET", f"{POOLS}/dmz"),
    "change another pool": ("PATCH", f"{POOLS}/dmz"),
    "list pools": ("GET", POOLS),
    "replace the pool": ("PUT", f"{POOLS}/lan"),
    "delete the pool": ("DELETE", f"{POOLS}/lan"),
    "create a pool": ("POST", POOLS),
}


@pytest.mark.parametrize(("method", "path"), OTHERS.values(), ids=OTHERS)
@pytest.mark.security("A policy denies it every other change of them")
def test_account_has_no_other_permission_on_pools(account: RestClient, method: str, path: str) -> None:
    body = None if method in {"GET", "DELETE"} else {**pool("lan", 1, "tenant-a"), "metadata": {"name": "lan"}}
    assert status_of(account, method, path, body) == 403


def test_policy_concerns_no_other_client(account: RestClient, pools: ControlPlane) -> None:
    assert status_of(pools.admin, "PATCH", f"{POOLS}/lan", {"spec": {"description": "by the administrator"}}) == 200


def test_other_options_leave_the_permission_and_deletion_removes_it(pools: ControlPlane, tmp_path: Path) -> None:
    addon, admin = Addon(pools, tmp_path), pools.admin
    name = RIGHTS.replace("prod", "other")
    granted = [path.replace(RIGHTS, name) for path in GRANTED]
    addon.run("--address-pools", "lan,none", "other", "tenant-a")
    rules = admin.request("GET", granted[0])["rules"]
    assert (rules[0]["resourceNames"], rules[0]["verbs"]) == (["lan", "none"], ["get", "patch"])
    assert admin.request("GET", granted[2])["spec"]["failurePolicy"] == "Fail"
    addon.run("other", "tenant-a")
    assert admin.request("GET", granted[0])["rules"] == rules
    addon.run("--address-pools", "none", "other", "tenant-a")
    assert admin.request("GET", granted[0])["rules"][0]["resourceNames"] == ["none"]
    _, messages = addon.run("--delete", "other", "tenant-a")
    assert [path for path in granted if admin.get_or_none(path) is not None] == []
    assert "warning" not in messages.lower()
    addon.run("--delete", "other", "tenant-a")


REFUSED: dict[str, tuple[str, str]] = {
    "pool of two namespaces": ("lan,dmz", "IP pool dmz serves other namespaces than tenant-a"),
    "global pool": ("all", "IP pool all serves other namespaces than tenant-a"),
    "no such pool": ("missing", "IP pool missing of --address-pools cannot be read"),
}


@pytest.mark.parametrize(("names", "message"), REFUSED.values(), ids=REFUSED)
def test_pool_that_others_use_needs_another_option(
    pools: ControlPlane, tmp_path: Path, names: str, message: str
) -> None:
    addon, account = Addon(pools, tmp_path), "refused"
    _, messages = addon.run("--address-pools", names, account, "tenant-a", expect=IS_REFUSED)
    assert message in messages
    assert pools.admin.get_or_none(f"/api/v1/namespaces/tenant-a/serviceaccounts/{account}") is None, "nothing is made"
    expect = IS_REFUSED if names == "missing" else HAS_DONE
    addon.run("--address-pools", names, "--shared-pool", account, "tenant-a", expect=expect)
    addon.run("--delete", account, "tenant-a")
