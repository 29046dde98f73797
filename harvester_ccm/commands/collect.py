"""``collect``: a support bundle of both clusters, without secrets, that ``explain -f`` replays."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from harvester_ccm import __version__
from harvester_ccm.commands import EXIT_OK, EXIT_PROBLEMS
from harvester_ccm.commands.bundle import FACTS, OBJECTS, facts_of, objects_of, packed
from harvester_ccm.commands.call import Call, Manual, refuse
from harvester_ccm.commands.clusters import Clusters, ask, in_both, open_clusters, read_guest, read_harvester
from harvester_ccm.commands.inventory import Inventory
from harvester_ccm.commands.preflight import look_before
from harvester_ccm.commands.render import Form, Output
from harvester_ccm.config import LeaderElectionSettings
from harvester_ccm.errors import CCMError
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.model.core import LEASES
from harvester_ccm.redaction import redact, redact_text

STANDARD_OUTPUT: Final = "-"
LOG_LINES: Final = 2000
"""So many of the last lines of each pod's log."""
EVENTS: Final = 5000
"""At most so many Events are looked through."""
OF_OURS: Final = ("Service", "Node", "Lease", "LoadBalancer", "VirtualMachine")
"""Kinds whose Events are kept."""
PODS: Final = "app.kubernetes.io/name=harvester-cloud-provider"
"""Label selector of the program's pods, by the chart."""

_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode

README: Final = """\
A support bundle of harvester-ccm {version}, taken {taken}.

facts.json      version, flags, and which collections could not be read and why
objects.json    Services, Nodes, load balancers, VMs as far as the program reads them
preflight.json  the checks of both clusters
events.json     Events on these objects, in the guest and in Harvester
lease.json      who leads
logs/           the last lines of the program's pods

Values of unknown annotations, and everything that looks like a credential, are removed. Look again:

  harvester-ccm explain svc/NAME -n NAMESPACE -f THIS-FILE
"""


async def _collect(call: Call) -> int:
    target = _target(call)
    files, left_out = await gather_files(call)
    content = packed(files)
    if target == STANDARD_OUTPUT:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        _write(Path(target), content)
    for sentence in (f"{len(files)} files, {len(content)} bytes", *(f"not in it: {one}" for one in left_out)):
        sys.stderr.write(f"harvester-ccm: {sentence}\n")
    return EXIT_PROBLEMS if left_out else EXIT_OK


def _target(call: Call) -> str:
    if len(call.arguments) > 1:
        raise refuse(f"one file is written, got {' '.join(call.arguments)}")
    target = call.arguments[0] if call.arguments else STANDARD_OUTPUT
    if target == STANDARD_OUTPUT and sys.stdout.isatty():
        raise refuse("a bundle is no text for a terminal: name a file, as in collect case.tgz")
    return target


def _write(path: Path, content: bytes) -> None:
    try:
        path.touch(mode=0o600)
        path.write_bytes(content)
    except OSError as error:
        raise refuse(f"{path}: {(error.strerror or error.__class__.__name__).lower()}") from None


async def gather_files(call: Call) -> tuple[dict[str, str], list[str]]:
    """Return the files of the bundle by name, and in sentences what could not be read."""
    async with open_clusters(call.settings, call.environment) as clusters:
        guest, harvester = await asyncio.gather(read_guest(clusters.guest), read_harvester(clusters.harvester))
        inventory = in_both(guest, harvester)
        left_out = [f"{plural}: {error}" for plural, error in inventory.problems.items()]
        files = _files_of(call, inventory)
        files |= await _more_files(call, clusters, left_out)
    files["preflight.json"] = await _preflight(call)
    return {name: redact_text(text) if name.startswith("logs/") else text for name, text in files.items()}, left_out


def _files_of(call: Call, inventory: Inventory) -> dict[str, str]:
    facts = facts_of(__version__, call.flags, inventory)
    return {
        "README.txt": README.format(version=facts.version, taken=facts.taken),
        FACTS: _text(msgspec.to_builtins(facts)),
        OBJECTS: _text(objects_of(inventory)),
    }


async def _more_files(call: Call, clusters: Clusters, left_out: list[str]) -> dict[str, str]:
    """Return what only helps to understand; what may not be read is added to ``left_out``."""
    election, harvester = call.settings.leader_election, clusters.harvester
    events = {
        "guest": await ask(_events(clusters.guest, "/api/v1/events")),
        "harvester": await ask(_events(harvester, f"/api/v1/namespaces/{harvester.namespace}/events")),
    }
    lease = await ask(clusters.guest.get(LEASES, election.name, namespace=election.namespace))
    logs = await ask(_logs(clusters.guest, election))
    answers = {"events of the guest": events["guest"], "events of Harvester": events["harvester"]}
    left_out += [f"{what}: {one.error}" for what, one in {**answers, "Lease": lease, "logs": logs}.items() if one.error]
    files = {"events.json": _text({where: one.answer for where, one in events.items()})}
    if lease.answer is not None:
        files["lease.json"] = _text(redact(msgspec.to_builtins(lease.answer)))
    return files | {f"logs/{name}.txt": text for name, text in (logs.answer or {}).items()}


async def _events(client: ApiClient, path: str) -> list[dict[str, object]]:
    """Return the Events on objects that we have to do with, newest last, without what is of no use."""
    document = await client.read(path, _decode, params={"limit": str(EVENTS)})
    found = [_event(one) for one in document.get("items") or () if _kind(one) in OF_OURS]
    return sorted(found, key=lambda one: str(one["lastTimestamp"]))


def _kind(event: Mapping[str, Any]) -> str:
    return str((event.get("involvedObject") or {}).get("kind"))


def _event(event: Mapping[str, Any]) -> dict[str, object]:
    about, kept = event.get("involvedObject") or {}, ("type", "reason", "message", "count", "firstTimestamp")
    return {
        "about": "/".join(str(about[key]) for key in ("kind", "namespace", "name") if about.get(key)),
        "by": (event.get("source") or {}).get("component") or event.get("reportingComponent"),
        "lastTimestamp": event.get("lastTimestamp") or event.get("eventTime"),
        **{key: redact(event.get(key)) for key in kept},
    }


async def _logs(client: ApiClient, election: LeaderElectionSettings) -> dict[str, str]:
    """Return the last lines of the program's pods, by pod."""
    path = f"/api/v1/namespaces/{election.namespace}/pods"
    document = await client.read(path, _decode, params={"labelSelector": PODS})
    names = [str(one["metadata"]["name"]) for one in document.get("items") or ()]
    if not names:
        raise CCMError(f"there is no pod with label {PODS} in namespace {election.namespace}")
    tail = {"tailLines": str(LOG_LINES)}
    texts = [await client.request("GET", f"{path}/{name}/log", params=tail) for name in names]
    return {name: text.decode("utf-8", "replace") for name, text in zip(names, texts, strict=True)}


async def _preflight(call: Call) -> str:
    text = io.StringIO()
    await look_before(call.settings, call.environment, Output(text, form=Form.JSON))
    return redact_text(text.getvalue())


def _text(document: object) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False)


MANUAL: Final = Manual(
    usages=("collect [FILE] [flags]",),
    examples=(
        ("From the pod of the program.", "collect > case.tgz"),
        ("From anywhere with both kubeconfigs.", "collect case.tgz --cloud-config=FILE --cluster-name=demo"),
        ("Look at it elsewhere.", "explain svc/web -n shop -f case.tgz"),
    ),
    meaning="""
        Writes a support bundle (tar.gz): flags, the checks of preflight, Services, Nodes, load balancers and VMs as
        far as the program reads them, Events, the Lease and the last log lines. Secrets are not in it: none are read,
        VMs go in without their start-up data, unknown annotations without their values, and what looks like a
        credential is removed. Look through it before you hand it on all the same. explain -f replays it. Nothing is
        changed.

        Exit codes: 0 everything is in it, 1 something could not be read, and it says what, 2 the command line cannot be
        used.
    """,
    own=(),
    action=_collect,
)
