"""Whether Harvester's webhook and schema accept a load balancer, checked without creating one (``dryRun=All``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from harvester_ccm.commands.checks_connection import Check, Result
from harvester_ccm.commands.clusters import ask
from harvester_ccm.commands.rights import HARVESTER
from harvester_ccm.errors import AdmissionDenied, BadRequest, Forbidden, Invalid, ServerError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.plan.service.messages import WEBHOOK_AWAY, remedy


async def check_admission(harvester: ApiClient, body: Mapping[str, object], namespace: str) -> Check:
    """Return the check that Harvester accepts a new load balancer."""
    row = partial(Check, HARVESTER, "webhook")
    error = (await ask(harvester.check_creation(LOAD_BALANCERS, body, namespace=namespace))).error
    match error:
        case None:
            return row(Result.OK, "a load balancer would be admitted (dry run, none was created)")
        case BadRequest() if "dry run" in str(error):
            return row(Result.WARNING, f"no dry run is possible: {error}")
        case AdmissionDenied() | Invalid() | BadRequest():
            return row(Result.FAILED, f"Harvester would refuse the load balancer: {error}", remedy(str(error)))
        case Forbidden():
            return row(Result.SKIPPED, "the credential cannot create load balancers, so no dry run is possible")
        case ServerError() if "failed calling webhook" in str(error):
            return row(Result.FAILED, f"no load balancer can be created or deleted: {error}", WEBHOOK_AWAY)
    return row(Result.WARNING, f"the dry run failed: {error}")
