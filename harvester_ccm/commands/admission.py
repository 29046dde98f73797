"""What Harvester's webhook and schema would say to a new load balancer, asked without making one (``dryRun=All``)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from harvester_ccm.commands.clusters import ask
from harvester_ccm.errors import (
    AdmissionDenied,
    AlreadyExists,
    BadRequest,
    CCMError,
    Conflict,
    Forbidden,
    Invalid,
    ServerError,
)
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.harvester import LOAD_BALANCERS
from harvester_ccm.plan.service.messages import WEBHOOK_AWAY, remedy

DRY_RUN: Final = {"dryRun": "All"}


class AdmissionVerdict(StrEnum):
    """What a request would come to, in the words of the JSON."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    WEBHOOK_AWAY = "webhook away"
    NOT_ALLOWED = "not allowed to ask"
    UNKNOWN = "not known"


class Admission(Struct, frozen=True):
    """The answer."""

    verdict: AdmissionVerdict
    says: str = ""
    """Harvester's own words; empty when it has none."""
    advice: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether no load balancer can be made as things are."""
        return self.verdict in (AdmissionVerdict.REFUSED, AdmissionVerdict.WEBHOOK_AWAY)

    @property
    def who(self) -> str:
        """Who refuses: a quota, a policy or the schema are of the API server itself, which asks no webhook then."""
        by_itself = self.verdict is AdmissionVerdict.REFUSED and "admission webhook" not in self.says
        return f"Harvester's {'API server' if by_itself else 'webhook'}"

    def document(self) -> dict[str, object]:
        """Return the answer for scripts."""
        return {"result": str(self.verdict), "message": self.says or None, "advice": self.advice or None}

    def sentence(self) -> str:
        """Return the answer for people, with who gives it."""
        match self.verdict:
            case AdmissionVerdict.ADMITTED:
                return f"{self.who} would admit it (asked by a dry run, nothing was made)"
            case AdmissionVerdict.NOT_ALLOWED:
                return f"{self.who} is not asked: this credential is not allowed to (it may not create load balancers)"
            case AdmissionVerdict.REFUSED:
                told = f"{self.who} would refuse it: {self.says}"
            case AdmissionVerdict.WEBHOOK_AWAY:
                told = f"{self.who} does not answer, so Harvester takes no load balancer: {self.says}"
            case _:
                told = f"What {self.who} would say is not known: {self.says}"
        return f"{told}. {self.advice}".removesuffix(" ")


async def ask_admission(harvester: ApiClient, body: Mapping[str, object], namespace: str) -> Admission:
    """Return what would be said to a new load balancer, by sending it as a dry run."""
    asked = await ask(harvester.request("POST", LOAD_BALANCERS.path(namespace), params=DRY_RUN, body=body))
    return Admission(AdmissionVerdict.ADMITTED) if asked.error is None else judge(asked.error)


def judge(error: CCMError) -> Admission:
    """Return what an error of a dry run means."""
    text = str(error)
    match error:
        case AlreadyExists() | Conflict():
            return Admission(AdmissionVerdict.UNKNOWN, f"there is one of this name already ({text})")
        case BadRequest() if "dry run" in text:
            return Admission(AdmissionVerdict.UNKNOWN, text)
        case AdmissionDenied() | Invalid() | BadRequest():
            return Admission(AdmissionVerdict.REFUSED, text, remedy(text))
        case Forbidden():
            return Admission(AdmissionVerdict.NOT_ALLOWED, text)
        case ServerError() if "failed calling webhook" in text:
            return Admission(AdmissionVerdict.WEBHOOK_AWAY, text, WEBHOOK_AWAY)
    return Admission(AdmissionVerdict.UNKNOWN, text)
