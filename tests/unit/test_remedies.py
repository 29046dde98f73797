"""What an error of an API server means for a user, and what to do about it."""

import pytest

from harvester_ccm.kube.errors import (
    Answer,
    AnswerTooLarge,
    CertificateNotValid,
    ConnectionRefused,
    Forbidden,
    HostUnknown,
    NoResponse,
    NotTrusted,
    ProxyFailed,
    TimedOut,
    Unauthorized,
    UnexpectedAnswer,
    Unreachable,
    WatchSilent,
)
from harvester_ccm.remedies import guest_rbac_hint, problem_of, remedy_of

FIREWALL = "Check that Harvester's API servers respond, firewalls and routes"
OTHER_SERVER = "Check the server in the cloud-config, and any proxy"
REJECTED = Answer(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("kind", "problem", "remedy"),
    [
        (Unreachable, "cannot be reached", FIREWALL),
        (TimedOut, "does not answer", "On each management node of Harvester, run kubectl get --raw"),
        (WatchSilent, "does not answer", "On each management node of Harvester, run kubectl get --raw"),
        (HostUnknown, "cannot be reached, because its host name cannot be resolved", "Check DNS"),
        (ConnectionRefused, "cannot be reached, because nothing listens at its address", "Check that Harvester is up"),
        (
            ProxyFailed,
            "cannot be reached, because the proxy on the way to it does not connect",
            "Check the proxy, which",
        ),
        (NotTrusted, "answers with a certificate that does not fit the cloud-config", "Either the address"),
        (CertificateNotValid, "answers with a certificate that is not valid at this time", "Compare the clocks"),
        (UnexpectedAnswer, "did not respond like a Kubernetes API server", OTHER_SERVER),
        (AnswerTooLarge, "responded with more than an API server sends", OTHER_SERVER),
        (NoResponse, "did not respond to a write within 35 s", "If kubectl get --raw /readyz says ok"),
    ],
)
def test_kind_of_outage_has_a_problem_and_a_remedy(kind: type[Unreachable], problem: str, remedy: str) -> None:
    error = kind("refused")
    assert problem_of(error) == problem
    assert remedy_of(error).startswith(remedy)


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (Unreachable, "Check the API servers of this cluster"),
        (HostUnknown, "Check the API servers of this cluster"),
        (TimedOut, "On each control plane node of this cluster"),
        (ProxyFailed, "Check the proxy, which"),
        (NotTrusted, "Check address, certificate-authority-data and tls-server-name in the kubeconfig"),
        (CertificateNotValid, "Compare the clocks of this machine"),
    ],
)
def test_outage_of_the_guest_cluster_has_a_remedy_of_its_own(kind: type[Unreachable], remedy: str) -> None:
    error = kind("refused")
    error.cluster = "guest"
    assert remedy_of(error).startswith(remedy)


@pytest.mark.parametrize(
    ("resource", "role"), [("leases", "leader-election"), ("configmaps", "network-mapping"), ("nodes", "")]
)
def test_hint_names_the_role_of_the_resource(resource: str, role: str) -> None:
    assert guest_rbac_hint(resource).startswith(
        f"Role and RoleBinding harvester-cloud-provider-{role} " if role else "ClusterRole and ClusterRoleBinding"
    )


@pytest.mark.parametrize(("cluster", "remedy"), [("harvester", "This server is Rancher"), ("guest", "Get a new")])
def test_token_of_rancher_is_no_credential_of_harvester(cluster: str, remedy: str) -> None:
    error = Unauthorized(REJECTED, server="https://rancher.example.com/k8s/clusters/c-1")
    error.cluster = cluster
    assert remedy_of(error).startswith(remedy)


@pytest.mark.parametrize(
    ("message", "where"),
    [
        pytest.param(
            'services is forbidden: User "u" cannot list resource "services" in API group "" in the namespace "vms"',
            "namespace vms",
            id="named",
        ),
        pytest.param("no", "the namespace of the VMs", id="unknown"),
    ],
)
def test_remedy_of_a_missing_permission_has_the_namespace(message: str, where: str) -> None:
    remedy = remedy_of(Forbidden(Answer(403, "Forbidden", message)))
    assert remedy.startswith(f"Bind the ClusterRole harvesterhci.io:cloudprovider to it in {where}, as")


@pytest.mark.parametrize(("namespace", "begins"), [("vms", "Bind the ClusterRole"), ("other", "The credential is an")])
def test_account_of_another_namespace_than_that_of_the_context_is_named(namespace: str, begins: str) -> None:
    message = (
        'loadbalancers is forbidden: User "system:serviceaccount:vms:demo" cannot list resource "loadbalancers" in API '
        f'group "loadbalancer.harvesterhci.io" in the namespace "{namespace}"'
    )
    remedy = remedy_of(Forbidden(Answer(403, "Forbidden", message)))
    assert remedy.startswith(begins)
    assert ("set the namespace of the context to vms" in remedy) == (namespace == "other")


@pytest.mark.parametrize(
    ("cluster", "remedy"),
    [
        pytest.param(
            "harvester", "Create a new token: run generate_addon.sh demo vms against Harvester", id="Harvester"
        ),
        pytest.param("", "Create a new token: run generate_addon.sh demo vms against Harvester", id="not known"),
        pytest.param("guest", "Get a new kubeconfig of this cluster", id="guest cluster"),
    ],
)
def test_rejected_credential_has_the_remedy_of_its_cluster(cluster: str, remedy: str) -> None:
    error = Unauthorized(REJECTED, server="https://h", credential="the token in /cc", account="vms/demo")
    error.cluster = cluster
    assert problem_of(error) == "at https://h does not accept the token in /cc"
    assert remedy_of(error).startswith(remedy)


def test_rejected_credential_without_a_description_is_that_of_the_cloud_config() -> None:
    error = Unauthorized(REJECTED)
    assert problem_of(error) == "does not accept the token in the cloud-config"
    assert "generate_addon.sh <account> <namespace> against" in remedy_of(error)
