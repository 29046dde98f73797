"""The answers of plans in words: what a Service waits for, or why nothing more is done."""

from __future__ import annotations

from harvester_ccm.model.outcome import Done, Outcome, Refused, Retry, Wait, WaitReason

Document = dict[str, object]


def outcome_document(outcome: Outcome) -> Document:
    """Return the outcome for scripts: ``result``, and ``reason``, ``meaning``, ``atMost`` (seconds) where there are."""
    match outcome:
        case Done():
            return {"result": "done"}
        case Wait(reason=reason, at_most=at_most):
            limit = {} if at_most is None else {"atMost": round(at_most, 3)}
            return {"result": "wait", "reason": reason, "meaning": WaitReason(reason).meaning, **limit}
        case Retry(after=after):
            return {"result": "retry", "atMost": round(after, 3)}
        case Refused(reason=reason):
            return {"result": "refused", "reason": reason, "meaning": WaitReason(reason).meaning}


def outcome_sentence(outcome: Outcome) -> str:
    """Return the outcome for people."""
    match outcome:
        case Done():
            return "nothing: with this, all is as it should be"
        case Wait(reason=reason, at_most=at_most):
            limit = "" if at_most is None else f"; looked at again after {at_most:.0f} s at the latest"
            return f"{WaitReason(reason).meaning}{limit}"
        case Retry(after=after):
            return f"the next try, in {after:.0f} s"
        case Refused(reason=reason):
            return WaitReason(reason).meaning
