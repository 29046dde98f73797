"""Credentials of both clusters by the settings, and the name that this program has in its requests."""

from pathlib import Path

import pytest
import yaml

from harvester_ccm import __version__
from harvester_ccm.access import guest_credentials, harvester_credentials
from harvester_ccm.config import GuestSettings, HarvesterSettings
from harvester_ccm.kube.errors import CredentialError


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig with a token."""
    document = {
        "current-context": "main",
        "clusters": [{"name": "one", "cluster": {"server": "https://192.0.2.1:6443"}}],
        "users": [{"name": "me", "user": {"token": "good"}}],
        "contexts": [
            {"name": "main", "context": {"cluster": "one", "user": "me"}},
            {"name": "other", "context": {"cluster": "one", "user": "me", "namespace": "vms"}},
        ],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def test_program_has_its_name_in_the_requests_to_both_clusters(kubeconfig: Path) -> None:
    guest = guest_credentials(GuestSettings((kubeconfig,), ""), {})
    harvester = harvester_credentials(HarvesterSettings(kubeconfig, "prod"), {})
    # API servers record the part before the slash as the manager of the fields.
    assert (guest.user_agent, harvester.user_agent) == (f"harvester-ccm/{__version__}",) * 2


def test_context_and_server_are_those_of_the_flags(kubeconfig: Path) -> None:
    guest = guest_credentials(GuestSettings((kubeconfig,), "https://192.0.2.9:6443", "other"), {})
    harvester = harvester_credentials(HarvesterSettings(kubeconfig, "prod", context="other"), {})
    assert (guest.server, guest.namespace, harvester.namespace) == ("https://192.0.2.9:6443", "vms", "vms")


def test_missing_kubeconfig_outside_of_a_pod_names_the_flag() -> None:
    with pytest.raises(CredentialError, match=r"this is not a pod; set --kubeconfig or KUBECONFIG$"):
        guest_credentials(GuestSettings((), ""), {})


def test_missing_cloud_config_names_the_flag() -> None:
    with pytest.raises(CredentialError, match=r"^--cloud-config is not set"):
        harvester_credentials(HarvesterSettings(None, "prod"), {})
