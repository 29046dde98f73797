"""The holder of a Lease, for readers outside of the election: what program it is."""

from harvester_ccm.kube.builtin import Lease


def holder_mark(program: str, identity: str) -> str:
    """Return the value of the annotation with which a candidate says what program it is.

    It names the holder as well: client-go keeps the annotations of a Lease that it takes.
    """
    return f"{program} {identity}"


def program_of_holder(lease: Lease, annotation: str) -> str:
    """Return the program that holds a Lease; empty if nobody does, or if its holder has not marked it."""
    program, _, identity = (lease.metadata.annotation(annotation) or "").partition(" ")
    return program if identity and identity == lease.spec.holder_identity else ""
