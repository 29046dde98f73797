"""Credentials of both clusters, as the settings name them."""

from collections.abc import Mapping

from harvester_ccm.config import GuestSettings, HarvesterSettings, Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import CredentialError


def harvester_credentials(settings: HarvesterSettings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of --cloud-config. Raises CredentialError."""
    if settings.cloud_config is None:
        raise CredentialError("--cloud-config is not set; expected the path of a kubeconfig for Harvester")
    return load_credentials(settings.cloud_config, environment, context=settings.context)


def guest_credentials(settings: GuestSettings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of --kubeconfig, KUBECONFIG or the pod. Raises CredentialError."""
    return load_credentials(settings.kubeconfigs, environment, master=settings.master, context=settings.context)


def both_credentials(settings: Settings, environment: Mapping[str, str]) -> tuple[Credentials, Credentials]:
    """Return the credentials for the guest cluster and for Harvester.

    Raises CredentialError for Harvester's, ConfigurationError for the guest cluster's: their exit codes differ.
    """
    harvester = harvester_credentials(settings.harvester, environment)
    try:
        return guest_credentials(settings.guest, environment), harvester
    except CredentialError as error:
        raise ConfigurationError([f"guest cluster: {error}"]) from error
