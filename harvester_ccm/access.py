"""Credentials of both clusters, as the settings name them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from harvester_ccm import __version__
from harvester_ccm.config import GuestSettings, HarvesterSettings, Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.credentials import Credentials, load_credentials
from harvester_ccm.kube.errors import CredentialError, NotInCluster
from harvester_ccm.names import PROGRAM

USER_AGENT: Final = f"{PROGRAM}/{__version__}"
"""In all requests to both clusters."""


def harvester_credentials(settings: HarvesterSettings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of --cloud-config. Raises CredentialError."""
    if settings.cloud_config is None:
        raise CredentialError("--cloud-config is not set; expected the path of a kubeconfig for Harvester")
    credentials = load_credentials(settings.cloud_config, environment, context=settings.context)
    return replace(credentials, user_agent=USER_AGENT)


def guest_credentials(settings: GuestSettings, environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of --kubeconfig, KUBECONFIG or the pod. Raises CredentialError."""
    try:
        credentials = load_credentials(
            settings.kubeconfigs, environment, master=settings.master, context=settings.context
        )
    except NotInCluster as error:
        raise CredentialError(f"{error}; set --kubeconfig or KUBECONFIG") from error
    return replace(credentials, user_agent=USER_AGENT)


def both_credentials(settings: Settings, environment: Mapping[str, str]) -> tuple[Credentials, Credentials]:
    """Return the credentials for the guest cluster and for Harvester.

    Raises CredentialError for Harvester's, ConfigurationError for the guest cluster's: their exit codes differ.
    """
    harvester = harvester_credentials(settings.harvester, environment)
    try:
        guest = guest_credentials(settings.guest, environment)
    except CredentialError as error:
        raise ConfigurationError([f"guest cluster: {error}"]) from error
    return guest, harvester
