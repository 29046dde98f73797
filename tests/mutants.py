"""Faults that the tests without servers have to notice: each one is put into the program and must fail its tests.

    python -m tests.mutants          # all of them
    python -m tests.mutants fence    # those with this word in their name

Ends with 1 when one survives, when its text is not found exactly once any more, or when its tests fail without it.
A fault stands here because it would do harm (an address announced twice, a leak, a Node deleted) and because it was
survived once, or would be easy to make.

The tests are collected once, in one process. It forks for every fault, and the fork gives the functions of one module
the code that the changed text has, and runs the tests that must notice. So a fault has to be within a function.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
PRODUCT: Final = "harvester_ccm"
PROGRAM: Final = "program/"
"""How files in ``tests/program`` are named here."""
TEST_SECONDS: Final = 30
"""Processor time that the tests of a mutant get; a test that turns for ever has noticed."""
FAULTLESS_SECONDS: Final = TEST_SECONDS // 2
"""What they may need without any fault, so that it is the fault when a mutant's tests need more than they get."""
VERDICTS: Final = {
    int(pytest.ExitCode.OK): "survived",
    int(pytest.ExitCode.TESTS_FAILED): "killed",
    -signal.SIGKILL: "killed",
}

Tests = tuple[str, ...]
"""Files with tests, as paths in the project."""


@dataclass(frozen=True)
class Mutant:
    """A fault in the program."""

    name: str
    file: str
    """In ``harvester_ccm``."""
    old: str
    """Text that stands in the file exactly once, in a function."""
    new: str
    tests: str
    """Files in ``tests/unit`` that must notice it, separated by spaces; those of ``tests/program`` with their room."""

    @property
    def path(self) -> Path:
        """The file that it is in."""
        return ROOT / PRODUCT / self.file

    @property
    def module(self) -> str:
        """The name of the module that it is in."""
        return ".".join((PRODUCT, *Path(self.file).with_suffix("").parts))

    @property
    def paths(self) -> Tests:
        """The tests that must notice it."""
        return tuple(f"tests/{'' if test.startswith(PROGRAM) else 'unit/'}{test}" for test in self.tests.split())


SERVICE_TESTS: Final = "controllers/test_service.py"
SHARING_TESTS: Final = "plan/service/test_shared_address.py"
NOT_BOOKED_TESTS: Final = "program/test_addresses_not_booked.py"
OWNERSHIP_TESTS: Final = "plan/service/test_ownership.py"

PACE_TESTS: Final = "plan/service/test_pace.py program/test_pace.py"

MUTANTS: Final = (
    # What no test noticed when a condition was taken out of what comes before a deletion or a write.
    Mutant(
        "a load balancer that somebody else has made is deleted as an orphan",
        "plan/service/orphans.py",
        "if state is Orphan.LIKELY or suspicion.strange:",
        "if state is Orphan.LIKELY:",
        "plan/service/test_orphans.py",
    ),
    Mutant(
        "a load balancer of which half of the Service's name is gone is an orphan",
        "plan/service/orphans.py",
        "bool(meta.label(LB_SERVICE_NAME) and meta.label(LB_SERVICE_NAMESPACE))",
        "bool(meta.label(LB_SERVICE_NAME))",
        "plan/service/test_orphans.py",
    ),
    Mutant(
        "a mark that cannot be compared is taken for none",
        "plan/service/ownership.py",
        "shown = not mark and label",
        "shown = label",
        OWNERSHIP_TESTS,
    ),
    Mutant(
        "a Service is let go while another load balancer may have its address",
        "plan/service/decision.py",
        "return strange and not shares",
        "return False",
        "plan/service/test_decision_unavailable.py",
    ),
    Mutant(
        "a load balancer is deleted for a kind that its Service cannot have",
        "plan/service/decision.py",
        "if refusal is None and creatable and",
        "if creatable and",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "a Service of another network holds a port against those that may share",
        "plan/service/shared_address.py",
        "        and (one.metadata.label(PRIMARY_SERVICE_LABEL) == label or not _network_clash(one, primary))\n",
        "",
        "plan/service/test_shared_address_secondaries.py",
    ),
    Mutant(
        "the VM of another namespace's Node is asked after, and the Node deleted",
        "plan/node/existence.py",
        "        and not match.stranger\n",
        "",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "a VM that starts is shut down",
        "plan/node/existence.py",
        "if printable in _GOING_DOWN:",
        "if printable not in _RUNNING:",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "the power of a VM that only has the name shuts a Node down",
        "plan/node/lifecycle.py",
        "if vm and not view.existence.namesake else None",
        "if vm else None",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "a foreign VM is a Node's by the host name of its guest",
        "plan/node/match.py",
        "if m.membership is not Membership.FOREIGN and _same_host(name, m.hostname)]",
        "if _same_host(name, m.hostname)]",
        "plan/node/test_match.py",
    ),
    Mutant(
        "a machine that was paused writes on the strength of the last renewal",
        "kube/fence.py",
        "if renewed_at >= self._doubted_at and (opening or renewed_at >= self._asked_at):",
        "if renewed_at >= self._doubted_at:",
        "kube/test_fence.py",
    ),
    Mutant(
        "a write that fails is nothing that the status knows of",
        "controllers/service.py",
        "fails = isinstance(item, Service) and self.runner.failures(key) > 0",
        "fails = False",
        "program/test_service_refused.py",
    ),
    Mutant(
        "a proxy that forbids is taken for Harvester, which lacks a right",
        "errors.py",
        "(status == 403 or status >= 500)",
        "status >= 500",
        "test_errors.py",
    ),
    Mutant(
        "a quota is taken for a right that is missing",
        "errors.py",
        "_BY_A_RULE.search(answer.message)",
        "_BY_A_RULE.match(answer.message)",
        "test_errors.py",
    ),
    Mutant(
        "the words of a policy are taken for a rule that cannot be applied yet",
        "errors.py",
        "_NOT_YET.match(answer.message)",
        '"status unknown for quota" in answer.message',
        "test_errors.py",
    ),
    Mutant(
        "a deletion of a Node that a policy refuses counts as done",
        "controllers/node_lifecycle.py",
        "isinstance(error, Conflict | Forbidden | AdmissionDenied)",
        "isinstance(error, Conflict | Forbidden)",
        "controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "what was refused first is shown for good",
        "controllers/service.py",
        "state.failing = event",
        "state.failing = state.failing or event",
        "program/test_service_refused.py",
    ),
    # A credential that is not accepted, and a server that is away.
    Mutant(
        "a server that says when to come back is not heard",
        "kube/backoff.py",
        "return error.retry_after",
        "return None",
        "kube/test_backoff.py",
    ),
    Mutant(
        "a VM that could not be looked for is none",
        "commands/explain_node.py",
        "blind=VIRTUAL_MACHINES.plural in inventory.problems,",
        "blind=False,",
        "commands/test_away.py",
    ),
    Mutant(
        "initialised Nodes wait for a Harvester that is away",
        "status/report.py",
        "if plan.left_alone and (view.node.metadata.deleting or uninitialized_taints(view.node)):",
        "if plan.left_alone:",
        "commands/test_away.py",
    ),
    Mutant(
        "what is said of the whole is repeated for each",
        "commands/status_view.py",
        "if not away or said.reason != Reason.HARVESTER_UNAVAILABLE:",
        "if True:",
        "commands/test_away.py",
    ),
    Mutant(
        "whoever pastes the remedy ends the token of the running program",
        "errors.py",
        "(generate_addon.sh {name} {namespace}",
        "(generate_addon.sh --rotate {name} {namespace}",
        "test_errors.py",
    ),
    Mutant(
        "a command for a cluster that is gone sends people to its pod",
        "commands/call.py",
        'if not flags.text("cloud-config") and not manual.rights:',
        'if not flags.text("cloud-config"):',
        "commands/test_away.py",
    ),
    Mutant(
        "a right on Services is named whatever is missing",
        "commands/call.py",
        'if error.answer.request.partition("?")[0].endswith("/services"):',
        "if True:",
        "commands/test_away.py",
    ),
    Mutant(
        "beside a refused credential nothing else is told",
        "commands/call.py",
        '_report([f"{error}. {error.remedy}", *notes])',
        '_report([f"{error}. {error.remedy}"])',
        "commands/test_away.py",
    ),
    Mutant(
        "a load balancer that is not there yet is waited for",
        "status/report.py",
        "if reason == WaitReason.NOT_PROCESSED and situation.match.lb is None:",
        "if False:",
        "status/test_report.py",
    ),
    Mutant(
        "of two servers that are away one is told",
        "commands/clusters.py",
        "error.add_note(f",
        "str(f",
        "commands/test_away.py",
    ),
    Mutant(
        "what a token says of its account stands in a command whatever it is",
        "kube/tokens.py",
        "_SERVICE_ACCOUNT.fullmatch(",
        're.fullmatch("system:serviceaccount:([^:]*):(.*)", ',
        "kube/test_tokens.py",
    ),
    Mutant(
        "a token that expired is said to be revoked",
        "kube/tokens.py",
        "if end is not None and end <= now:",
        "if end is not None and end > now:",
        "kube/test_tokens.py",
    ),
    Mutant(
        "an address is remembered with a zone of any length",
        "netip.py",
        "_remembered if len(text) <= LONGEST_REMEMBERED else _plain",
        "_remembered",
        "test_remembered.py",
    ),
    Mutant(
        "a text of a status is remembered whatever its length",
        "redaction.py",
        "_remembered if len(text) <= LONGEST_TEXT else _inert",
        "_remembered",
        "test_remembered.py",
    ),
    # How many load balancers are asked for at once.
    Mutant(
        "a Service with IPv6 only gets a load balancer",
        "plan/service/request.py",
        'if service.spec.ip_families and "IPv4" not in service.spec.ip_families:',
        'if service.spec.ip_families and "IPv6" not in service.spec.ip_families:',
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "a Service that requires dual stack gets one address",
        "plan/service/request.py",
        'if new and service.spec.ip_family_policy == "RequireDualStack":',
        "if False:",
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "a Service that requires dual stack loses the address that it has",
        "plan/service/create.py",
        "new=situation.is_new)",
        "new=True)",
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "a Service whose status somebody empties is new",
        "plan/service/situation.py",
        "return not self.service.addresses and not self.service.metadata.has_finalizer(SERVICE_FINALIZER)",
        "return not self.service.addresses",
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "a secondary that is refused looks as if it was served",
        "plan/service/shared_address.py",
        "finalizer = True if sharing.servable else None",
        "finalizer = True",
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "nobody learns that dual stack is required in vain",
        "plan/service/request.py",
        '    if policy == "RequireDualStack":',
        '    if policy == "":',
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "two load balancers at once of a Harvester that has not proved fast",
        "plan/service/pace.py",
        "MOST) if grows else 1,",
        "MOST) if grows else 2,",
        PACE_TESTS,
    ),
    Mutant(
        "prompt answers prove a fast Harvester however seldom they come",
        "plan/service/pace.py",
        "spare = max(min(pace.spare + (now - pace.answered) * STOCK_RATE, STOCK_BURST) - 1, PROOF)",
        "spare = max(pace.spare - 1, PROOF)",
        PACE_TESTS,
    ),
    Mutant(
        "a creation that fails holds its place in line for ever",
        "controllers/turns.py",
        "        self._granted.discard(key)\n        self._call_next()",
        "        self._call_next()",
        PACE_TESTS,
    ),
    Mutant(
        "what serves is withdrawn while its load balancer may not be replaced",
        "plan/service/decision.py",
        "if refusal is None and creatable and situation.may_replace:",
        "if refusal is None and creatable:",
        "program/test_fights.py",
    ),
    Mutant(
        "the same where it is given up for the address of another Service",
        "plan/service/shared_address.py",
        "if keep is not None and not situation.may_replace:",
        "if False:",
        "program/test_fights.py",
    ),
    Mutant(
        "the time that a primary has begins before it can have an address",
        "plan/service/situation.py",
        'words += ["shares", *self._awaited_primary()]',
        'words += ["shares"]',
        "plan/service/test_shared_address_waiting.py",
    ),
    Mutant(
        "the turn of one that shares no more is counted from when it began to",
        "plan/service/situation.py",
        'words += ["shares", *self._awaited_primary()]',
        "words += self._awaited_primary()",
        "plan/service/test_shared_address_waiting.py",
    ),
    Mutant(
        "a load balancer is given up although no other one may be made for some time",
        "kube/brakes.py",
        "brake.allowance.turn_in(now, 2)",
        "brake.allowance.turn_in(now, 1)",
        "program/test_fights.py",
    ),
    Mutant(
        "what Harvester tries again at once is an answer",
        "plan/service/pace.py",
        "load_balancer.ready is not None and not is_tried_again(load_balancer)",
        "load_balancer.ready is not None",
        PACE_TESTS,
    ),
    Mutant(
        "one that Harvester tries again for ever holds up the others as long as one that it does not look at",
        "controllers/turns.py",
        "self._ask_for(name, RETRY_PATIENCE, tried_again=True)",
        "self._ask_for(name, ANSWER_PATIENCE, tried_again=True)",
        PACE_TESTS,
    ),
    Mutant(
        "an answer calls nobody",
        "controllers/turns.py",
        "self.pace = after_answer(self.pace, asked.at, asyncio.get_running_loop().time())\n        self._call_next()",
        "self.pace = after_answer(self.pace, asked.at, asyncio.get_running_loop().time())",
        PACE_TESTS,
    ),
    Mutant(
        "an address that is free again calls nobody",
        "plan/service/pending.py",
        'return old.allocated_pool if new is None or new.allocated_ip != old.allocated_ip else ""',
        'return ""',
        PACE_TESTS,
    ),
    Mutant(
        "one that gets an address calls nobody",
        "plan/service/pending.py",
        'return new.allocated_pool if was_refused and new is not None and new.allocated_ip else ""',
        'return ""',
        PACE_TESTS,
    ),
    Mutant(
        "one that nobody here can call holds up those who wait for the same pool",
        "controllers/service.py",
        "if service is None or serving(self._caches, service, self.cluster) != load_balancer:",
        "if False:",
        PACE_TESTS,
    ),
    Mutant(
        "a write that works again calls nobody",
        "controllers/revivals.py",
        "for key in sorted(stalled):",
        "for key in ():",
        PACE_TESTS,
    ),
    Mutant(
        "who is prepared later goes later, however long it has waited",
        "controllers/turns.py",
        "insort(self._line, (since, key))",
        "self._line.append((since, key))",
        PACE_TESTS,
    ),
    Mutant(
        "the condition says nothing of a Service that waits for its turn for long",
        "plan/service/decision.py",
        "    return replace(step, otherwise=with_condition(step.otherwise, situation))",
        "    return step",
        PACE_TESTS,
    ),
    Mutant(
        "one that goes while it waits stays in line",
        "controllers/turns.py",
        "            self._leave(key)",
        "            pass",
        PACE_TESTS,
    ),
    # Addresses that no load balancer of the Service holds.
    Mutant(
        "an address that its user gave is withdrawn where no pool fits",
        "plan/service/cluster_lb.py",
        "    if situation.kept:\n        return ServiceChange(",
        "    if not situation.service:\n        return ServiceChange(",
        NOT_BOOKED_TESTS,
    ),
    Mutant(
        "an address that its user gave is replaced by the one that Harvester gives",
        "plan/service/cluster_lb.py",
        "    if situation.kept:\n        return _plan_kept(",
        "    if False:\n        return _plan_kept(",
        NOT_BOOKED_TESTS,
    ),
    Mutant(
        "an address that another load balancer has got stays with the Service that lost it",
        "plan/service/decision.py",
        "if situation.unbooked and (taken",
        "if not situation.unbooked and (taken",
        NOT_BOOKED_TESTS,
    ),
    Mutant(
        "a new Service keeps the address that it asked kube-vip for",
        "plan/service/situation.py",
        "if self.service.condition(LOAD_BALANCER_READY) is not None and not keeps_unbooked(self.service):",
        "if False:",
        NOT_BOOKED_TESTS,
    ),
    # What commands go by.
    Mutant(
        "a command goes by the flags of a program in another container",
        "commands/beside.py",
        "_program(first) if not (home and there) or home == there else None",
        "_program(first)",
        "commands/test_beside.py",
    ),
    Mutant(
        "a command chooses between two running programs",
        "commands/beside.py",
        "return programs[0] if len(programs) == 1 else None",
        "return programs[0] if programs else None",
        "commands/test_beside.py",
    ),
    Mutant(
        "status asks the program beside it about other clusters",
        "commands/beside.py",
        "return not flags.explicit & _OF_THE_PROGRAM",
        "return True",
        "commands/test_status.py",
    ),
    Mutant(
        "a bundle is replayed with the flags that reached its clusters",
        "commands/bundle.py",
        "DEFAULTS.keys() - WAYS - flags.explicit",
        "DEFAULTS.keys() - flags.explicit",
        "commands/test_collect.py",
    ),
    Mutant(
        "all is well in a bundle of clusters that could not be read",
        "commands/status_lists.py",
        "problems=tuple(map(inert, inventory.lacking())),",
        "problems=(),",
        "commands/test_collect.py",
    ),
    # What is shown of the whole.
    Mutant(
        "the token is shown to whoever listens beside the program",
        "commands/reach.py",
        "bool(sockets) and sockets <= set(_open_files(process))",
        "bool(sockets & set(_open_files(process)))",
        "commands/test_reach.py",
    ),
    Mutant(
        "the status shows what others wrote as it is",
        "redaction.py",
        "return one_line(redact_text(text))[:LONGEST_TEXT]",
        "return text[:LONGEST_TEXT]",
        "status/test_report.py",
    ),
    Mutant(
        "the status of many Services holds up everything else",
        "telemetry/status.py",
        "if time.perf_counter() - began >= SLICE_SECONDS:",
        "if began < SLICE_SECONDS - 1:",
        "program/test_status_page.py",
    ),
    Mutant(
        "a token that has expired is to be renewed in time",
        "status/report.py",
        "if end <= now:",
        "if end <= now - SOON:",
        "status/test_report.py",
    ),
    Mutant(
        "a Node without a VM is well",
        "status/report.py",
        "match.problem is not None and not match.stranger and match.problem not in told",
        "match.problem is None",
        "status/test_report.py",
    ),
    # What the Service controller does.
    Mutant(
        "a load balancer is made for a Service that is gone",
        "plan/service/steps.py",
        "return service is not None and service.metadata.uid == uid",
        "return service is None or service.metadata.uid == uid",
        "plan/service/test_steps.py",
    ),
    Mutant(
        "a load balancer is made for a Service that may go without a word",
        "plan/service/steps.py",
        "service.metadata.uid == uid and service.metadata.has_finalizer(SERVICE_FINALIZER)",
        "service.metadata.uid == uid",
        SERVICE_TESTS,
    ),
    Mutant(
        "a Service that has only our finalizer left wakes nobody",
        "plan/service/selection.py",
        "return asks or marked or service.metadata.has_finalizer(SERVICE_FINALIZER)",
        "return asks",
        "plan/service/test_selection.py",
    ),
    Mutant(
        "those who share an address take no turns",
        "controllers/service.py",
        "            serial=self._shared_address,\n",
        "",
        "controllers/test_service_turns.py",
    ),
    Mutant(
        "the primary takes no turn",
        "controllers/service.py",
        "return (primary_reference(service) if service is not None else None) or key",
        'return (primary_reference(service) if service is not None else None) or key + " itself"',
        "controllers/test_service_turns.py",
    ),
    Mutant(
        "an address that is given wakes no secondary",
        "controllers/service.py",
        "if new is not None and allocated_addresses((new,)) !=",
        "if False and new is not None and allocated_addresses((new,)) !=",
        SERVICE_TESTS,
    ),
    Mutant(
        "a Service that was changed is not looked at with the answer",
        "controllers/service_writes.py",
        "        self._services.observe(written)",
        "        pass",
        SERVICE_TESTS,
    ),
    Mutant(
        "a load balancer is deleted without another look for users of its address",
        "controllers/service.py",
        "and is_older and not again:",
        "and is_older and again:",
        "controllers/test_service_turns.py",
    ),
    Mutant(
        "a 404 of any name means that the object is gone",
        "errors.py",
        'about=name if name in request.split("/") else "",',
        "about=name,",
        "test_errors.py",
    ),
    Mutant(
        "a load balancer is deleted whichever it is by now",
        "controllers/lb_api.py",
        "uid=uid, version=version, is_right=is_right",
        "is_right=is_right",
        SERVICE_TESTS,
    ),
    Mutant(
        "an unknown path means that the load balancer is gone",
        "controllers/lb_api.py",
        "        except NotFound:\n            return False",
        "        except (NotFound, NotServed):\n            return False",
        "controllers/test_service_v1alpha1.py",
    ),
    # What is decided about Services.
    Mutant(
        "a load balancer that is going is chosen before one that stays",
        "plan/service/ownership.py",
        "return (one.metadata.deleting, not in_use,",
        "return (not in_use,",
        OWNERSHIP_TESTS,
    ),
    Mutant(
        "another cluster's mark does not count",
        "plan/service/ownership.py",
        "if marked is False:",
        "if False:",
        OWNERSHIP_TESTS,
    ),
    Mutant(
        "a mark outweighs another cluster name",
        "plan/service/ownership.py",
        "if label is not None and label not in cluster.names:",
        "if False:",
        OWNERSHIP_TESTS,
    ),
    Mutant(
        "a Service of a copy loses the address that it shows",
        "plan/service/decision.py",
        "if current is None and (held := ",
        "if False and (held := ",
        f"{OWNERSHIP_TESTS} program/test_copies.py",
    ),
    Mutant(
        "one that loses a port to the primary loses the others at once",
        "plan/service/shared_address.py",
        "if not by_other and (not by_primary or one.metadata.label(PRIMARY_SERVICE_LABEL) == label):",
        "if not by_other and not by_primary:",
        SHARING_TESTS,
    ),
    Mutant(
        "the ports of the primary are free",
        "plan/service/shared_address.py",
        "own = dict.fromkeys(_ports(primary), primary.metadata.key)",
        "own: dict[Port, str] = {}",
        SHARING_TESTS,
    ),
    Mutant(
        "a port is not its holder's",
        "plan/service/shared_address.py",
        "holders.update(dict.fromkeys(_held(one, primary), one.metadata.key))",
        "pass",
        SHARING_TESTS,
    ),
    Mutant(
        "an address is shared that Harvester has not given",
        "plan/service/shared_address.py",
        "(allocated is not None and allocated.isdisjoint({sharing.address, DHCP_ADDRESS}))",
        "False",
        "plan/service/test_shared_address.py plan/service/test_decision_world.py",
    ),
    Mutant(
        "a load balancer goes while others use its address",
        "plan/service/cleanup.py",
        "users if held & {*one.addresses, Announcement.of(one).address})",
        "users if False)",
        "plan/service/test_cleanup.py plan/service/test_shared_address.py",
    ),
    Mutant(
        "what other clusters make is judged as well",
        "controllers/births.py",
        "self._seems_ours(new) and meta.uid",
        "meta.uid",
        "program/test_copies.py",
    ),
    Mutant(
        "what a backup of Harvester brings back is a copy's",
        "controllers/births.py",
        "        self._has_seen_all = False\n        self._readable_since = None",
        "        self._readable_since = None",
        "program/test_copies.py",
    ),
    Mutant(
        "what a copy made is ours when a backup brings it back",
        "controllers/births.py",
        "self._strange_and_gone if was_strange else self._gone",
        "self._gone",
        "program/test_copies.py",
    ),
    Mutant(
        "those that waited before the program led are not in line",
        "controllers/service.py",
        "self._follow_lines(None, load_balancer)",
        "pass",
        "program/test_pace.py",
    ),
    Mutant(
        "one that appears once more is given up when the first one would have been",
        "controllers/turns.py",
        "            before.given_up.cancel()",
        "            pass",
        "controllers/test_turns.py",
    ),
    Mutant(
        "a load balancer is asked for while another one is let go",
        "controllers/turns.py",
        "return len(self._granted) + len(self._asked) + len(self._leaving)",
        "return len(self._granted) + len(self._asked)",
        "program/test_pace.py",
    ),
    Mutant(
        "a load balancer that this process has not created, or not known to have, is not waited for",
        "controllers/service.py",
        "self._turns.appeared(new)",
        "pass",
        "program/test_pace.py",
    ),
    Mutant(
        "one that was closed goes before Harvester has looked at it",
        "plan/service/cleanup.py",
        "(load_balancer.is_closed and load_balancer.ready)",
        "load_balancer.is_closed",
        "plan/service/test_cleanup.py",
    ),
    Mutant(
        "an old refusal stays on one that is closed",
        "plan/service/load_balancer.py",
        '{**unsaid, "allocatedAddress": {"ipPool": change.closing_pool}}',
        '{**status, "allocatedAddress": {"ipPool": change.closing_pool}}',
        "plan/service/test_cleanup.py plan/service/test_steps.py",
    ),
    # kube-vip in the guest.
    Mutant(
        "kube-vip is only withdrawn where it has to be held, too",
        "plan/service/kube_vip.py",
        'if shown else {KUBE_VIP_IGNORE: "true"}',
        'if True else {KUBE_VIP_IGNORE: "true"}',
        "plan/service/test_cluster_lb.py plan/service/test_shared_address.py",
    ),
    Mutant(
        "what the user keeps from kube-vip is given to it",
        "plan/service/kube_vip.py",
        "return self.ignored and not self.ignored_by_user",
        "return self.ignored",
        "plan/service",
    ),
    Mutant(
        "Harvester announces an address that kube-vip announces still",
        "plan/service/kube_vip.py",
        "if look_again or (not found.ignored and (found.shown or found.wished)):",
        "if found.shown and found.ignored:",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "a held Service shows an address to kube-vip that ignores it for ever",
        "plan/service/kube_vip.py",
        "    if _is_held(service, address):\n        annotations[KUBE_VIP_IGNORE] = None\n",
        "",
        "plan/service/test_kube_vip.py plan/service/test_cluster_lb.py",
    ),
    Mutant(
        "a held Service on which somebody wrote an address is ignored for ever",
        "plan/service/kube_vip.py",
        "found.address != address and not found.status",
        "found.address is None and not found.status",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "a held Service without the empty annotation is ignored for ever",
        "plan/service/kube_vip.py",
        "return found.held or (waits and found.ignored_for_us)",
        "return found.held",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "kube-vip stays silent about an address that it has let go of",
        "plan/service/steps.py",
        "touch = () if situation.remembered.touched else ",
        "touch = () if True else ",
        "plan/service/test_cluster_lb.py controllers/test_service_endpoints.py",
    ),
    Mutant(
        "kube-vip stays silent about what it let go of before it noted that",
        "plan/service/kube_vip.py",
        "not found.ignored and (bool(found.status) or found.withdrawn)",
        "not found.ignored and bool(found.status)",
        "plan/service/test_kube_vip.py plan/service/test_cluster_lb.py",
    ),
    Mutant(
        "a lease that kube-vip has noted is shown though Harvester has another one",
        "plan/service/kube_vip.py",
        "goes_on = unshown_lease(service) == recorded and",
        "goes_on, recorded = True, unshown_lease(service)\n    goes_on = goes_on and",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "a lease that was taken out of the status is not shown again",
        "plan/service/kube_vip.py",
        "return recorded if goes_on else",
        "return recorded if False else",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "kube-vip goes on with the address in the status of a Service that it is to ignore",
        "plan/service/kube_vip.py",
        "if ours and found.shown else {}",
        "if ours and found.address else {}",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "a lease is waited for that kube-vip has and shows nobody",
        "plan/service/kube_vip.py",
        "and not found.ignored and not unshown_lease(service):",
        "and not found.ignored:",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "kube-vip is to ignore a Service whose lease it has, before it is told to let go of that",
        "plan/service/kube_vip.py",
        "or found.wished or stripped_off",
        "or found.wished",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "a lease that nobody has recorded and nobody shows is waited for",
        "plan/service/cluster_lb.py",
        "hold_and_withdraw(service) if anew_in == 0 else",
        "hold_and_withdraw(service) if False else",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "a lease is withdrawn that kube-vip would not get again",
        "plan/service/cluster_lb.py",
        "(TouchEndpoints(left),) if anew_in == 0 and not situation.remembered.touched else ()",
        "()",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "whether kube-vip may be told to get a lease anew is tried without a pause",
        "plan/service/cluster_lb.py",
        "    if situation.remembered.refused is not None:",
        "    if False:",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "a lease is withdrawn that kube-vip is just writing into the status",
        "plan/service/cluster_lb.py",
        "DHCP_PATIENCE - situation.noted_for, 0.0)",
        "0.0)",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "kube-vip is told every half minute to ask anew while the DHCP server is away",
        "plan/service/cluster_lb.py",
        "pause = _pause_after(situation.noted_for / 2)",
        "pause = _pause_after(0.0)",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "a lease counts as hidden since kube-vip noted one for the first time",
        "plan/service/situation.py",
        "if found.status or found.node is None:",
        "if found.node is None:",
        "plan/service/test_cluster_lb_dhcp.py",
    ),
    Mutant(
        "a load balancer that was made again and has no address is written for nothing",
        "plan/service/vm_lb.py",
        "situation.waited) if address else (change, None)",
        "situation.waited)",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "endpoints are touched for ever",
        "plan/service/steps.py",
        "touch = () if situation.remembered.touched else ",
        "touch = () if False else ",
        "controllers/test_service_endpoints.py",
    ),
    Mutant(
        "a touch that was refused is never made again",
        "plan/service/steps.py",
        "note = ChangeService(ServiceChange(annotations=kube_vip.TOUCH_REFUSED))",
        "note = ChangeService(ServiceChange(annotations=kube_vip.TOUCHED))",
        "controllers/test_service_endpoints.py",
    ),
    Mutant(
        "a touch that was refused and could not be noted is never made again",
        "plan/service/steps.py",
        "if situation.remembered.refused is not None and not found.touch_refused:",
        "if False:",
        "plan/service/test_cluster_lb.py controllers/test_service_endpoints.py",
    ),
    Mutant(
        "a touch that is never permitted is tried every few seconds",
        "plan/service/steps.py",
        "return min(max(refused, FIRST_TOUCH_RETRY), LONGEST_TOUCH_RETRY)",
        "return FIRST_TOUCH_RETRY",
        "plan/service/test_cluster_lb.py controllers/test_service_endpoints.py",
    ),
    Mutant(
        "an address is announced before its device is known",
        "plan/service/kube_vip.py",
        "return found.told != address and (device.unread or",
        "return False and (device.unread or",
        "plan/service/test_network_device.py controllers/test_service_wakes.py",
    ),
    Mutant(
        "kube-vip stays silent about an address whose annotation was taken off",
        "plan/service/kube_vip.py",
        "known = found.told == address and stripped(service, address) is None",
        "known = found.told == address",
        "plan/service/test_kube_vip.py",
    ),
    Mutant(
        "a load balancer is deleted for another one that a wrong primary does not let be created",
        "plan/service/decision.py",
        "creatable = complete and primary_reference(service) is None",
        "creatable = complete",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "a secondary keeps the address that somebody else has got while its primary was without one",
        "plan/service/shared_address.py",
        "if not kept and any(map(situation.booked_for_others, service.addresses)):",
        "if False:",
        "plan/service/test_shared_address_secondaries.py",
    ),
    # Load balancers without a Service.
    Mutant(
        "one is deleted the moment it looks left over",
        "plan/service/orphans.py",
        "if too_early and not seen_gone:",
        "if False:",
        "plan/service/test_orphans.py controllers/test_orphans.py",
    ),
    Mutant(
        "one that only has our cluster's name is deleted",
        "plan/service/orphans.py",
        "    if state is Orphan.LIKELY or suspicion.strange:",
        "    if suspicion.strange:",
        "plan/service/test_orphans.py controllers/test_orphans.py",
    ),
    Mutant(
        "one is deleted before its booking is certain, or while its address is in use",
        "plan/service/orphans.py",
        "    if unsafe:",
        "    if False:",
        "plan/service/test_orphans.py controllers/test_orphans.py",
    ),
    # Another Harvester.
    Mutant(
        "load balancers are made where nothing of the cluster is seen",
        "plan/service/decision.py",
        "    elif situation.recognition.sight is not Sight.OURS:",
        "    elif False:",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "one witness is enough to stop",
        "plan/service/selection.py",
        "    if any(one.metadata.uid in named for one in machines.all()):",
        "    if False:",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "VMs of before are believed when the cloud-config changes",
        "plan/service/selection.py",
        "    if not (machines.synced and settled):",
        "    if not machines.synced:",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "one of a copy is deleted",
        "plan/service/orphans.py",
        "    if not goes_by(load_balancer, cluster):",
        "    if False:",
        f"{OWNERSHIP_TESTS} program/test_copies.py",
    ),
    Mutant(
        "all are deleted at once",
        "plan/service/orphans.py",
        "if delete and suspicion.turn_in > 0:",
        "if False:",
        "plan/service/test_orphans.py controllers/test_orphans.py",
    ),
    Mutant(
        "another cluster's word deletes them",
        "controllers/orphans.py",
        "await self._guest.confirm()",
        "pass",
        "program/test_copies.py controllers/test_orphans.py",
    ),
    Mutant(
        "only load balancers tell of a backup of Harvester",
        "controllers/births.py",
        "for informer in (load_balancers, *beside):",
        "for informer in (load_balancers,):",
        "controllers/test_births.py",
    ),
    Mutant(
        "what a backup brings back has to be seen within a minute",
        "controllers/births.py",
        "        self._readable_since = None\n        self._state_changed()",
        "        self._readable_since = asyncio.get_running_loop().time()",
        "controllers/test_births.py",
    ),
    # Nodes.
    Mutant(
        "a Node that took the place of another one is waited for, however late the watch is",
        "controllers/node_writes.py",
        "if error.answer.status == UNPROCESSABLE:",
        "if False:",
        "controllers/test_node.py",
    ),
    Mutant(
        "an InternalIP goes the first time that it is left out of a report",
        "plan/node/awaited.py",
        "if waited.get(one, 0.0) < patience or one.version in families]",
        "if one.version in families]",
        "plan/node/test_awaited.py plan/node/test_addresses_adversary.py",
    ),
    Mutant(
        "the interface that comes up first counts",
        "plan/node/interfaces.py",
        "undecided_among=names",
        "undecided_among=()",
        "plan/node/test_interfaces.py plan/node/test_addresses_adversary.py",
    ),
    Mutant(
        "nobody learns that a Node keeps an InternalIP that is gone",
        "plan/node/addresses.py",
        "gone = any(seconds >= seen.settings.address_patience for seconds in waited.values())",
        "gone = False",
        "plan/node/test_interfaces.py",
    ),
    Mutant(
        "an InternalIP moves at once when its interface comes up after another one",
        "plan/node/addresses.py",
        "return AddressPlan(problem=problem, awaited=waited)",
        "return AddressPlan(problem=problem, awaited=dict.fromkeys(present, 1e9))",
        "plan/node/test_interfaces.py",
    ),
    Mutant(
        "a new Node does not wait for its kubelets address",
        "plan/node/awaited.py",
        "    pending = tuple(address for address in sought if waited.get(address, 0.0) < patience)",
        "    pending = ()",
        "plan/node/test_awaited.py",
    ),
    Mutant(
        "another address comes in the place of the awaited one",
        "plan/node/internal_ip.py",
        "    if family not in rules.reserved:",
        "    if True:",
        "plan/node/test_awaited.py",
    ),
    Mutant(
        "a load balancer takes the InternalIP that was there first",
        "plan/node/addresses.py",
        "if chosen_here or address.version not in families)",
        "if address.version not in families)",
        "plan/node/test_awaited.py",
    ),
    Mutant(
        "a Node that is tainted again is a new one",
        "plan/node/patch.py",
        "    return ours or any(",
        "    return ours and any(",
        "plan/node/test_awaited.py",
    ),
    Mutant(
        "a shutdown taint stays on a ready stranger",
        "plan/node/lifecycle.py",
        "return LifecyclePlan(_untainted(node))",
        "return LifecyclePlan(None if view.existence.stranger else _untainted(node))",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "a VM overwrites labels of others on its Node",
        "plan/node/vm_labels.py",
        "        theirs = key in present and key not in before",
        "        theirs = False",
        "plan/node/test_vm_labels.py",
    ),
    Mutant(
        "a VM takes away labels of others",
        "plan/node/vm_labels.py",
        "        elif present.get(key) == value:",
        "        else:",
        "plan/node/test_vm_labels.py",
    ),
    Mutant(
        "an address alone makes a VM the one of a Node",
        "plan/node/match.py",
        "(left > 0 and _has_internal_ip(vm, node))",
        "_has_internal_ip(vm, node)",
        "plan/node/test_match.py",
    ),
    # The queue, the caches and the Lease.
    Mutant(
        "two of a group are worked on side by side",
        "controllers/runner.py",
        "if group in self._waiting:",
        "if False:",
        "controllers/test_runner.py",
    ),
    Mutant(
        "a group never gets its next turn",
        "controllers/runner.py",
        "            self._line.append(_Turn(group))",
        "            pass",
        "controllers/test_runner.py",
    ),
    Mutant(
        "a key that changes while it is worked on is not worked on again",
        "controllers/runner.py",
        "            self._again.add(key)\n",
        "            pass\n",
        "controllers/test_runner.py",
    ),
    Mutant(
        "a sweep never gets its share of the line",
        "controllers/runner.py",
        "if self._since_swept > SWEEP_SHARE:",
        "if False:",
        "controllers/test_runner.py",
    ),
    Mutant(
        "a sweep goes before what something happened to",
        "controllers/runner.py",
        "            self._swept.update(dict.fromkeys([*early, *asked]))\n",
        "            for key in asked:\n                self.enqueue(key)\n            early.clear()\n",
        "controllers/test_runner.py",
    ),
    Mutant(
        "all Services are looked at before Harvester has answered, and once more then",
        "controllers/service.py",
        "answered = balancers.synced or balancers.problem is not None",
        "answered = True",
        "program/test_many.py",
    ),
    Mutant(
        "those of a sweep that come first wait for what is left of an earlier one",
        "controllers/runner.py",
        "self._swept.move_to_end(key, last=False)",
        "pass",
        "controllers/test_runner.py",
    ),
    Mutant(
        "those of a sweep that come first pass the others at every sweep",
        "controllers/runner.py",
        "self._ahead.update(ahead)",
        "pass",
        "controllers/test_runner.py",
    ),
    Mutant(
        "those of a sweep that come first pass the others once for ever",
        "controllers/runner.py",
        "self._ahead.clear()",
        "pass",
        "controllers/test_runner.py",
    ),
    Mutant(
        "those of a sweep that come first and were worked on go behind its others",
        "controllers/runner.py",
        "[*early, *asked]",
        "[*asked]",
        "controllers/test_runner.py",
    ),
    Mutant(
        "every Service of the first list is in line before those that need something",
        "controllers/service.py",
        "        if not self._services.synced:\n",
        "        if False:\n",
        "program/test_many.py",
    ),
    Mutant(
        "every load balancer of the first list has its Service in line before those that need something",
        "controllers/service.py",
        "        if self._load_balancers.synced:\n            self._enqueue_concerned",
        "        if True:\n            self._enqueue_concerned",
        "program/test_many.py",
    ),
    Mutant(
        "a page of a list is decoded in one step",
        "kube/client.py",
        "if number and number % SLICE == 0:",
        "if False:",
        "kube/test_informer.py",
    ),
    Mutant(
        "a first list is told of in one step",
        "kube/informer.py",
        "            self._tell(SLICE)\n",
        "            self._tell(len(self._untold))\n",
        "kube/test_informer.py",
    ),
    Mutant(
        "an answer amid the first list is told of before it",
        "kube/store.py",
        "            self._tell(len(self._untold))\n            self._put(item)",
        "            self._put(item)",
        "kube/test_informer.py",
    ),
    Mutant(
        "a write waits for the end of the pause after a failed renewal",
        "kube/lease.py",
        "            await self._fence.renewal_asked(self._times.retry_period)\n\n    async def release",
        "            await asyncio.sleep(self._times.retry_period)\n\n    async def release",
        "kube/test_fence.py",
    ),
    Mutant(
        "a late answer brings back what is deleted",
        "kube/store.py",
        "if _version(item) > self._seen:",
        "if True:",
        "kube/test_informer.py",
    ),
    Mutant(
        "a list that lacks what our own write told of is taken for an older one",
        "kube/store.py",
        "return max(self._seen, *map(_version, self._objects.values()), 0)",
        "return self._seen",
        "kube/test_informer.py",
    ),
    Mutant(
        "an answer amid a list makes that one of an older server",
        "kube/store.py",
        "rewound = listed < newest or",
        "rewound = listed < self._newest_known() or",
        "kube/test_informer.py",
    ),
    Mutant(
        "a watch that worked and was cut counts as a failure",
        "kube/informer.py",
        "return self.spoke or self.has_lasted(seconds)",
        "return False",
        "kube/test_informer.py",
    ),
    Mutant(
        "a watch that lasted and was ended by an error counts as a failure",
        "kube/informer.py",
        "if watch.has_lasted(self._timing.poll[0]):",
        "if False:",
        "kube/test_informer.py",
    ),
    Mutant(
        "a server that was away is followed from where it was",
        "kube/informer.py",
        "if isinstance(problem, (Unreachable, ServerError)):",
        "if False:",
        "kube/test_informer.py",
    ),
    Mutant(
        "writes leave without the Lease",
        "kube/fence.py",
        "if not await self._certain():",
        "if False:",
        "kube/test_fence.py",
    ),
    Mutant(
        "writes leave on a Lease that was renewed before the machine was paused",
        "kube/fence.py",
        "while self.is_open and loop.time() >= self._fresh_until:",
        "while False:",
        "kube/test_fence.py",
    ),
    Mutant(
        "a renewal of before the pause is believed",
        "kube/fence.py",
        "if renewed_at >= self._doubted_at and (",
        "if (",
        "kube/test_fence.py",
    ),
    Mutant(
        "a candidate asks for the Lease without a pause",
        "kube/lease.py",
        "            await asyncio.sleep(self._times.retry_period * random.uniform(*LOOKS))\n",
        "            pass\n",
        "kube/test_lease.py",
    ),
    Mutant(
        "a change of credentials while they are read is missed",
        "kube/reload.py",
        "contents, *credentials.files)\n                credentials = await asyncio.to_thread(self._load)\n",
        "contents, *credentials.files)\n",
        "kube/test_reload.py",
    ),
    Mutant(
        "a new token of the service account closes all connections",
        "kube/reload.py",
        "if found == self._contents:",
        "if False:",
        "kube/test_reload.py",
    ),
    Mutant(
        "a file that a kubeconfig names anew is looked at after it was read",
        "kube/reload.py",
        "        await self._client.use(credentials)\n",
        "        await self._client.use(credentials)\n        self._seen = fingerprint(*credentials.files)\n",
        "kube/test_reload.py",
    ),
    Mutant(
        "servers whose clocks differ look like time that was lost",
        "kube/server_clock.py",
        "if before is not None and self._least:",
        "if False:",
        "kube/test_server_clock.py",
    ),
    Mutant(
        "a server's clock that was put back hides lost time for ever",
        "kube/server_clock.py",
        "while self._least and self._least[0][0] <",
        "while False and self._least[0][0] <",
        "kube/test_server_clock.py",
    ),
    Mutant(
        "time that a server's answer shows to be lost is not noticed",
        "kube/client.py",
        "if gained > GAIN_SECONDS:",
        "if False:",
        "kube/test_server_clock.py",
    ),
    Mutant(
        "a token that is no text is asked the API server about",
        "telemetry/auth.py",
        "if not token.isascii():",
        "if False:",
        "telemetry/test_server.py",
    ),
    Mutant(
        "every request that fails is a traceback in the log",
        "telemetry/server.py",
        "            if self.told.now():",
        "            if True:",
        "telemetry/test_server.py",
    ),
    Mutant(
        "a flood from elsewhere ends the handshake of a probe",
        "telemetry/door.py",
        "            oldest = _oldest_of_most(self._shaking)",
        "            oldest = next(iter(self._shaking))",
        "telemetry/test_server.py",
    ),
    Mutant(
        "a probe that has spoken makes room for the silent",
        "telemetry/door.py",
        "            self._hear(oldest)\n",
        "",
        "telemetry/test_server.py",
    ),
    Mutant(
        "a directory in the place of a credential is left open",
        "kube/credential_files.py",
        'open(path, "rb", buffering=0, opener=_open_at_once)',
        'open(_open_at_once(str(path), 0), "rb", buffering=0)',
        "kube/test_broken_credentials.py",
    ),
    Mutant(
        "a running program waits for a pipe as long as at its start",
        "access.py",
        "harvester_credentials, settings.harvester, environment, pipe_seconds=RELOAD_PIPE_SECONDS",
        "harvester_credentials, settings.harvester, environment",
        "kube/test_broken_credentials.py",
    ),
    Mutant(
        "a device is read as a credential",
        "kube/credential_files.py",
        "if not stat.S_ISREG(mode):",
        "if False:",
        "kube/test_broken_credentials.py",
    ),
    Mutant(
        "an object that is nested deep ends the program",
        "kube/collection.py",
        "sys.setrecursionlimit(usual + NESTING)",
        "sys.setrecursionlimit(usual)",
        "kube/test_informer.py",
    ),
    Mutant(
        "a note that is nested deep stops its Service",
        "model/meta.py",
        "except RecursionError:",
        "except ZeroDivisionError:",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "a watch event that is too large is asked for again and again",
        "kube/informer.py",
        "not isinstance(problem, (WatchSilent, UnexpectedAnswer))",
        "not isinstance(problem, WatchSilent)",
        "kube/test_informer.py",
    ),
    Mutant(
        "what is no text in a kubeconfig is left out",
        "kube/kubeconfig.py",
        "if value is not None and not isinstance(value, str):",
        "if not isinstance(value, str):\n            return ''\n        if False:",
        "kube/test_broken_credentials.py",
    ),
    Mutant(
        "a server whose name cannot be written down is taken over",
        "kube/credentials.py",
        'and _is_host(parts.hostname or "") and',
        "and bool(parts.hostname) and",
        "kube/test_broken_credentials.py",
    ),
    Mutant(
        "the last file of a KUBECONFIG list holds",
        "kube/kubeconfig.py",
        "for path, document in documents:\n        entries",
        "for path, document in reversed(documents):\n        entries",
        "kube/test_kubeconfig.py",
    ),
    Mutant(
        "a write that was sent is forgotten",
        "kube/fence.py",
        "return await asyncio.shield(task)",
        "return await task",
        "kube/test_fence.py",
    ),
    # Nodes.
    Mutant(
        "addresses are decided before those of load balancers are known",
        "plan/node/decision.py",
        "if known.complete or (known.problem is not None and uninitialized_taints(view.node)):",
        "if True:",
        "plan/node/test_decision.py",
    ),
    Mutant(
        "the host name of a VMI that was replaced is taken over",
        "controllers/vms.py",
        "if current is None or current.metadata.uid != vmi.metadata.uid or self._hostnames.get(name) == hostname:",
        "if current is None or self._hostnames.get(name) == hostname:",
        "controllers/test_guest_hostnames.py",
    ),
    Mutant(
        "the addresses of load balancers are taken to be complete before they were read",
        "plan/node/decision.py",
        "return VirtualIPs(addresses, complete, source, unread.get(source))",
        "return VirtualIPs(addresses, True, source, unread.get(source))",
        "controllers/test_node.py",
    ),
    Mutant(
        "a VM whose VMI cannot be read is called stopped",
        "plan/node/decision.py",
        "if vm.vmi is None and view.unreadable is not None:",
        "if False:",
        "plan/node/test_decision.py",
    ),
    Mutant(
        "the taint is removed by the version that was read, not by that of the last answer",
        "controllers/node.py",
        "request = patch_request(written or node, patch)",
        "request = patch_request(node, patch)",
        "controllers/test_node.py",
    ),
    Mutant(
        "explain decides a Node's life before its initialisation is written",
        "commands/explain_node.py",
        "life = observe_lifecycle(store, after,",
        "life = observe_lifecycle(store, node,",
        "commands/test_explain_node_requests.py",
    ),
    Mutant(
        "any 404 means that a VM is gone",
        "plan/node/existence.py",
        "isinstance(error, NotFound) and sentence in error.answer.message",
        "isinstance(error, NotFound)",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "one answer is enough to delete a Node",
        "plan/node/lifecycle.py",
        "if absences.count < max(settings.deletion_confirmations, 2):",
        "if absences.count < 1:",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "Nodes whose VM was never seen are deleted by and by",
        "plan/node/lifecycle.py",
        "return _was_seen(view) and view.check.confirmed >= len(view.check.missing)",
        "return view.check.confirmed >= len(view.check.missing)",
        "plan/node/test_lifecycle.py",
    ),
    Mutant(
        "copies of VMs prove that it is the right Harvester",
        "plan/node/lifecycle.py",
        "if check.managed <= len(check.missing) + check.replaced:",
        "if check.managed <= len(check.missing):",
        "controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "deletions of Nodes that are under way are not counted",
        "controllers/node_lifecycle.py",
        "        self._deletions[uid] = now\n        try:",
        "        try:",
        "controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "a load balancer is deleted that a Service has taken over while its deletion waited for the Lease",
        "controllers/orphans.py",
        "return self._plan(load_balancer, service_of(load_balancer, self._services), suspect, has_turn=True).delete",
        "return True",
        "controllers/test_orphans.py",
    ),
    Mutant(
        "a load balancer is deleted whose Service has come back while its deletion waited for the Lease",
        "controllers/service.py",
        "return step in plan_service(self.recall(now)).steps",
        "return True",
        "controllers/test_service.py",
    ),
    Mutant(
        "a load balancer is deleted whatever was written to it",
        "kube/client.py",
        '(("uid", uid), ("resourceVersion", version))',
        '(("uid", uid),)',
        "controllers/test_orphans.py",
    ),
    Mutant(
        "a copy believes the note of the original's move",
        "plan/service/create.py",
        "if noted is None or not _is_of(noted, situation.cluster):",
        "if noted is None:",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "the Node of a VM that was replaced is told of the address",
        "plan/node/decision.py",
        "_shared(store, node) if match.vm is not None else {}",
        "_shared(store, node)",
        "controllers/test_node.py",
    ),
    Mutant(
        "a Node whose VM is gone has an InternalIP still",
        "plan/node/decision.py",
        " and match_vm(store, one).vm is not None",
        "",
        "controllers/test_node.py",
    ),
    Mutant(
        "a Node that is not Ready has an InternalIP still",
        "plan/node/decision.py",
        ' and one.ready == "True"',
        "",
        "controllers/test_node.py",
    ),
    Mutant(
        "Nodes of one InternalIP are told again whenever one joins",
        "plan/node/events.py",
        "        subject=address,\n    )\n\n\ndef provided_elsewhere",
        '        subject=f"{address} {some_of(others)}",\n    )\n\n\ndef provided_elsewhere',
        "controllers/test_node.py",
    ),
    Mutant(
        "a copy makes a load balancer while the original's is moved",
        "plan/service/decision.py",
        "noted = move_elsewhere(situation) if service.addresses else None",
        "noted = move_elsewhere(situation) if False else None",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "the note of a move that names no load balancer of the Service stops it for ever",
        "plan/service/create.py",
        "proven = noted.name == made or is_name_of(noted.name, service)",
        "proven = True",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "the note of a move stops a Service that nobody has served",
        "plan/service/create.py",
        "noted if proven and meta.has_finalizer(SERVICE_FINALIZER) else None",
        "noted if proven else None",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "the note of a move brings a stranger's text into a command",
        "plan/service/create.py",
        "return noted if all(map(OBJECT_NAME.fullmatch, names)) else None",
        "return noted",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "a backup that machines alone tell of is not noticed",
        "controllers/service.py",
        "Births(load_balancers, (vms.vms, vms.vmis))",
        "Births(load_balancers, (vms.vmis,))",
        "controllers/test_births.py",
    ),
    Mutant(
        "a backup that the instances of machines alone tell of is not noticed",
        "controllers/service.py",
        "Births(load_balancers, (vms.vms, vms.vmis))",
        "Births(load_balancers, (vms.vms,))",
        "controllers/test_births.py",
    ),
    Mutant(
        "a backup that whatever is read from Harvester beside load balancers alone tells of is not noticed",
        "controllers/service.py",
        "Births(load_balancers, (vms.vms, vms.vmis))",
        "Births(load_balancers, ())",
        "controllers/test_births.py",
    ),
    Mutant(
        "a copy takes the place of a VM that is gone by its firmware UUID",
        "plan/node/match.py",
        "    if _had_another_name(node, vm):\n        # A copy",
        "    if False:\n        # A copy",
        "plan/node/test_match.py",
    ),
    Mutant(
        "a Node that is gone keeps its claim to a VM",
        "plan/node/vms.py",
        "claims = {uid: name for uid, name in index.claims.items() if uid not in changes}",
        "claims = dict(index.claims)",
        "controllers/test_vms.py",
    ),
    Mutant(
        "what changes shortly after work that goes through everything is never looked at",
        "controllers/gathering.py",
        "if self.due is None:",
        "if self.due is None and asyncio.get_running_loop().time() - self._last >= GATHER_SECONDS:",
        "controllers/test_gathering.py",
    ),
    Mutant(
        "a Node does not learn that another one has got its InternalIP",
        "controllers/vms.py",
        "for name in sharing | {one.metadata.name for one in (old, new) if one is not None}:",
        "for name in {one.metadata.name for one in (old, new) if one is not None}:",
        "controllers/test_node.py",
    ),
    Mutant(
        "conflicts without end lead to no list",
        "controllers/runner.py",
        "            for catch_up in self.on_behind:\n                catch_up()\n",
        "",
        "program/test_lost_changes.py",
    ),
    Mutant(
        "each conflict leads to a list",
        "kube/informer.py",
        "if asyncio.get_running_loop().time() - self._listed_at >= CATCH_UP_SECONDS:",
        "if True:",
        "program/test_lost_changes.py",
    ),
    Mutant(
        "a full pool of a Harvester that does not name it is not closed",
        "plan/service/pending.py",
        'full = load_balancer.spec.ip_pool if _is_exhausted(message) else ""',
        'full = ""',
        "plan/service/test_cleanup.py",
    ),
    Mutant(
        "a pool that may not exist is named to close a load balancer",
        "plan/service/pending.py",
        'full = load_balancer.spec.ip_pool if _is_exhausted(message) else ""',
        "full = load_balancer.spec.ip_pool",
        "plan/service/test_cleanup.py",
    ),
    Mutant(
        "cleanup deletes a load balancer that another cluster has taken over",
        "commands/cleanup.py",
        "if _whose(current) != _whose(found):",
        "if False:",
        "commands/test_cleanup.py",
    ),
    Mutant(
        "cleanup deletes a load balancer whatever was written to it",
        "commands/cleanup.py",
        "uid=meta.uid, version=meta.resource_version)",
        "uid=meta.uid)",
        "commands/test_cleanup.py",
    ),
    Mutant(
        "a copy asks for a load balancer under the name of the original's",
        "plan/service/create.py",
        "if noted.name in match.judged.keys() - own:",
        "if False:",
        "plan/service/test_create_replacement.py",
    ),
    Mutant(
        "a Node that joined anew does not count once more among the deletions of some minutes",
        "controllers/node_lifecycle.py",
        "        self._deletions[uid] = now",
        "        self._deletions[request.name] = now",
        "controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "a Node is deleted whose VM has come back while its deletion waited for the Lease",
        "controllers/node_lifecycle.py",
        "return node is not None and self._plan(node, memory, live_get).request == request",
        "return node is not None",
        "controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "a Node is deleted whatever became of it",
        "plan/node/lifecycle.py",
        'preconditions = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}',
        "preconditions: dict[str, str] = {}",
        "plan/node/test_lifecycle.py controllers/test_node_lifecycle.py",
    ),
    Mutant(
        "an address in use is given back for a change of the pool",
        "plan/service/decision.py",
        "in_use = load_balancer.address or found.status or found.told == address",
        "in_use = False",
        "plan/service/test_pending.py",
    ),
    Mutant(
        "an address that is shared is announced on the default device, too",
        "plan/service/kube_vip.py",
        "KUBE_VIP_INTERFACE: found.device}",
        "KUBE_VIP_INTERFACE: None}",
        SHARING_TESTS,
    ),
    Mutant(
        "what a copy of the same name makes is taken for left over",
        "controllers/births.py",
        "self.strange.add(meta.uid)",
        "pass",
        "program/test_copies.py",
    ),
    Mutant(
        "what was there before is a copy's when Harvester was away at first",
        "controllers/births.py",
        "meta.name not in self._made and self._has_seen_all\n",
        "meta.name not in self._made and asyncio.get_running_loop().time() - (self._led_since or 1e9) >= 60\n",
        "program/test_copies.py",
    ),
    Mutant(
        "adopting what appeared late has no effect",
        "plan/service/ownership.py",
        "if strange and made_under is None and uid is None:",
        "if strange and made_under is None:",
        "program/test_copies.py",
    ),
    Mutant(
        "what a watch tells of late is a copy's",
        "controllers/births.py",
        "now - max(self._led_since, self._readable_since) >= LATE_CREATION",
        "now - self._led_since >= LATE_CREATION",
        "program/test_copies.py",
    ),
    Mutant(
        "what a copy makes during an outage is taken for left over",
        "controllers/births.py",
        "in self._made and self._has_seen_all\n",
        "in self._made and self._has_seen_all and self._load_balancers.problem is None\n",
        "program/test_copies.py",
    ),
    # How often something is written again.
    Mutant(
        "what somebody undoes is put right without end",
        "kube/brakes.py",
        "return Hold(group, seconds, undone) if seconds and (undone or brake.counts_all) else None",
        "return Hold(group, seconds, undone) if seconds and brake.counts_all else None",
        "kube/test_brakes.py",
    ),
    Mutant(
        "a Service in a fight is not let go",
        "kube/brakes.py",
        "if last or not holds:",
        "if not holds:",
        "kube/test_brakes.py",
    ),
    Mutant(
        "a Service that may not be let go is written without end",
        "controllers/service.py",
        "lets_go and self.runner.failures(key) < TELL_AFTER_FAILURES",
        "lets_go",
        "program/test_fights.py",
    ),
    Mutant(
        "what a Service was let go with counts as undone when it comes back",
        "kube/brakes.py",
        "if release.last and any(",
        "if False and any(",
        "program/test_fights.py",
    ),
    Mutant(
        "a finalizer that somebody takes away is put back without end",
        "kube/brakes.py",
        "if release.last and any(",
        "if any(",
        "kube/test_brakes.py",
    ),
    Mutant(
        "conditions of others count as our own undone",
        "kube/brakes.py",
        "elif path == _CONDITIONS:",
        "elif False:",
        "kube/test_brakes.py",
    ),
    Mutant(
        "a load balancer is deleted although its announcement could not be withdrawn",
        "controllers/service.py",
        "if isinstance(step, DeleteLoadBalancer | CreateLoadBalancer) and holds:",
        "if isinstance(step, CreateLoadBalancer) and holds:",
        "program/test_fights.py",
    ),
    # What has an object looked at: without it, that waits for the second look half a minute later.
    Mutant(
        "a Service that was changed wakes nobody",
        "controllers/service.py",
        "caches.services.on_change(self._service_changed)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "a load balancer that was changed wakes nobody",
        "controllers/service.py",
        "caches.load_balancers.on_change(self._load_balancer_changed)",
        "pass",
        SERVICE_TESTS,
    ),
    Mutant(
        "load balancers that can be read again do not tell of the backends",
        "controllers/service.py",
        "caches.load_balancers.on_state(self._refresh_backends)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "load balancers that can be read again wake no Service",
        "controllers/service.py",
        "caches.load_balancers.on_state(self._enqueue_all)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "a VM that was changed wakes no Service of a VM load balancer",
        "controllers/service.py",
        "caches.vms.on_wake(lambda _name: self.backends.ask())",
        "pass",
        "controllers/test_service_endpoints.py controllers/test_service.py",
    ),
    Mutant(
        "VMs that can be read again wake no Service of a VM load balancer",
        "controllers/service.py",
        "informer.on_state(self._refresh_backends)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "the networks of the cluster change and wake no Service",
        "controllers/service.py",
        "caches.config_maps.on_change(self._enqueue_all)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "the networks of the cluster can be read again and wake no Service",
        "controllers/service.py",
        "caches.config_maps.on_state(self._enqueue_all)",
        "pass",
        "controllers/test_service_wakes.py",
    ),
    Mutant(
        "a Service that goes leaves the others waiting for a word on the Harvester",
        "controllers/service.py",
        "caches.services.on_change(self._look_at_harvester)",
        "pass",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "a load balancer of the cluster that comes is no word on the Harvester",
        "controllers/service.py",
        "caches.load_balancers.on_change(self._look_at_harvester)",
        "pass",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "a VM of the cluster that comes is no word on the Harvester",
        "controllers/service.py",
        "caches.vms.vms.on_change(self._look_at_harvester)",
        "pass",
        "program/test_new_harvester.py",
    ),
    Mutant(
        "a VM that was changed wakes no Node",
        "controllers/node.py",
        "vms.on_wake(self.runner.enqueue)",
        "pass",
        "controllers/test_node.py",
    ),
    Mutant(
        "a virtual address that came or went wakes no Node",
        "controllers/node.py",
        "virtual_addresses.on_change(self._virtual_ips_changed)",
        "pass",
        "controllers/test_node.py",
    ),
    Mutant(
        "virtual addresses that can be relied on again wake no Node",
        "controllers/node.py",
        "virtual_addresses.on_state(vms.wake_all)",
        "pass",
        "controllers/test_node.py",
    ),
    # What people are told.
    Mutant(
        "annotations of strangers go into a bundle with their values",
        "commands/bundle.py",
        "value if key in _KNOWN else REMOVED",
        "value if key else REMOVED",
        "commands/test_collect.py",
    ),
    Mutant(
        "a load balancer that Harvester did not show is none",
        "commands/service_report.py",
        "if not situation.harvester_known:\n            return [",
        "if False:\n            return [",
        "commands/test_explain_service.py",
    ),
    Mutant(
        "a status shows who stands in line as one that Harvester has to answer",
        "controllers/service.py",
        "in_line=self._turns.waits(situation.service.metadata.key))",
        "in_line=False)",
        "program/test_status_page.py",
    ),
    Mutant(
        "a status does not ask for pools for long after a fault of the moment",
        "telemetry/status.py",
        "except (Forbidden, NotServed):",
        "except CCMError:",
        "program/test_status_page.py",
    ),
    Mutant(
        "a status counts a load balancer in a pool that has given it no address",
        "status/report.py",
        "if one.allocated_pool and one.allocated_ip:",
        "if one.allocated_pool:",
        "status/test_report.py",
    ),
    Mutant(
        "a status asks for pools that may not be read every time",
        "telemetry/status.py",
        "self._due = loop.time() + pause",
        "self._due = loop.time()",
        "program/test_status_page.py",
    ),
    Mutant(
        "an address that Harvester gave changes without a word",
        "plan/service/cluster_lb.py",
        "and not before.found_served and before.given.isdisjoint(shown)",
        "",
        "plan/service/test_request_ignored.py",
    ),
    Mutant(
        "a network that some VMs are in is called missing, because another VM does not run",
        "plan/node/match.py",
        "    if not known or len(known) < len(vmis):",
        "    if not known:",
        "commands/test_explain_service.py",
    ),
    Mutant(
        "Nodes that may not be read are taken for none",
        "commands/inventory.py",
        "backends=backends if NODES.plural not in self.problems else Backends(known=False),",
        "backends=backends,",
        "commands/test_one_service.py",
    ),
    Mutant(
        "a primary that may not be read is taken for none",
        "commands/one_service.py",
        "    if asked.error is not None and not isinstance(asked.error, NotFound):",
        "    if False:",
        "commands/test_one_service.py",
    ),
    Mutant(
        "the webhook is asked by a request that makes the load balancer",
        "commands/admission.py",
        "params=DRY_RUN",
        "params={}",
        "commands/test_admission.py",
    ),
)


def main(words: Sequence[str]) -> int:
    """Try the mutants with any of the words in their names, or all; return the exit status."""
    chosen = [one for one in MUTANTS if not words or any(word in one.name for word in words)]
    wrong = [problem for one in chosen if (problem := misplaced(one))]
    if not wrong:
        with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
            wrong = _tried(chosen, Path(directory))
    sys.stdout.write("\n".join(["", *wrong, f"{len(chosen)} faults, {len(wrong)} problems"]) + "\n")
    return 1 if wrong or not chosen else 0


def _tried(mutants: Sequence[Mutant], directory: Path) -> list[str]:
    """Return the problems of these mutants; in a fork, which runs tests, it does not return."""
    trial = Trial(mutants, directory)
    paths = sorted({path for one in mutants for path in one.paths})
    status = pytest.main(["-q", "-x", "--capture=sys", "-p", "no:cacheprovider", *paths], plugins=[trial])
    if trial.is_fork:
        os._exit(status)
    return trial.problems if trial.begun else ["the tests cannot be collected"]


def misplaced(mutant: Mutant) -> str:
    """Return what is wrong with the text that a mutant replaces; empty when it is found once."""
    count = mutant.path.read_text().count(mutant.old) if mutant.path.exists() else 0
    return "" if count == 1 else f"text found {count} times in {mutant.file}: {mutant.name}"


@dataclass
class Trial:
    """Takes the place of pytest's loop over the tests: for each mutant they run in a fork."""

    mutants: Sequence[Mutant]
    directory: Path
    """For what the forks write."""
    is_fork: bool = False
    begun: bool = False
    problems: list[str] = field(default_factory=list)
    _running: dict[int, tuple[Mutant | Tests, Path]] = field(default_factory=dict)
    """By process, what is tried there, and where it writes; tests themselves are tried without any fault."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork and wait; in a fork leave the tests to pytest."""
        if session.testsfailed:
            return None
        self.begun = True
        for one in self.mutants:
            # What tests load only while they run could not be changed before.
            importlib.import_module(one.module)
        functions = _functions_of_the_program()
        everything = session.items[:]
        # As the mutants run them: what passes only after other tests would be a fault that was noticed.
        for paths in dict.fromkeys(one.paths for one in self.mutants):
            if self._forked(paths):
                session.items[:] = _in_files(everything, paths)
                return None
        for mutant in self.mutants:
            codes = _new_codes(mutant)
            if codes is None:
                self.problems.append(f"not within a function: {mutant.name} ({mutant.file})")
            elif self._forked(mutant):
                session.items[:] = _in_files(everything, mutant.paths)
                for function in functions.get(str(mutant.path), ()):
                    function.__code__ = codes.get(_place_of(function.__code__), function.__code__)
                return None
        self._wait(0)
        return True

    def _forked(self, tried: Mutant | Tests) -> bool:
        """Return whether this is the fork, once there is a processor for it."""
        self._wait((os.cpu_count() or 1) - 1)
        place = Path(tempfile.mkdtemp(dir=self.directory))
        process = os.fork()
        if process:
            self._running[process] = tried, place
            return False
        self.is_fork = True
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(place)
        output = os.open(place / "output", os.O_CREAT | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        seconds = TEST_SECONDS if isinstance(tried, Mutant) else FAULTLESS_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        return True

    def _wait(self, most: int) -> None:
        """Return when no more than so many forks run."""
        while len(self._running) > most:
            process, status = os.wait()
            self._judge(*self._running.pop(process), os.waitstatus_to_exitcode(status))

    def _judge(self, tried: Mutant | Tests, place: Path, status: int) -> None:
        """Say what came of a mutant: ``killed`` when its tests failed or did not end, ``survived`` when they passed."""
        verdict = VERDICTS.get(status, "broken")
        if isinstance(tried, Mutant):
            os.write(1, f"{verdict:<10} {tried.name}\n".encode())
            if verdict != "killed":
                self.problems.append(f"{verdict}: {tried.name} ({tried.file}; {', '.join(tried.paths)})")
        elif status == -signal.SIGKILL:
            self.problems.append(f"more than {FAULTLESS_SECONDS} s of processor without any fault: {', '.join(tried)}")
        elif verdict != "survived":
            self.problems.append(f"fails without any fault: {', '.join(tried)}\n{(place / 'output').read_text()}")
        shutil.rmtree(place)


def _in_files(tests: Sequence[pytest.Item], paths: Tests) -> list[pytest.Item]:
    return [one for one in tests if one.nodeid.startswith(paths)]


_Place = tuple[str, int]
"""Qualified name of a function, and its first line."""


def _functions_of_the_program() -> dict[str, list[FunctionType]]:
    """Return what is defined in each file of the program, however it is wrapped."""
    product, files = str(ROOT / PRODUCT), dict[str, list[FunctionType]]()
    # Where pytest's set-up has put it aside, the collector does not show it.
    gc.unfreeze()
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(product):
            files.setdefault(one.__code__.co_filename, []).append(one)
    gc.freeze()
    return files


def _new_codes(mutant: Mutant) -> dict[_Place, CodeType] | None:
    """Return what the functions of a file become, by where they stand; None when something else changes."""
    text = mutant.path.read_text()
    old, new = (compile(one, mutant.path, "exec") for one in (text, text.replace(mutant.old, mutant.new)))
    if [_outside(one) for one in _bodies(old)] != [_outside(one) for one in _bodies(new)]:
        return None
    pairs = zip(_functions(old), _functions(new), strict=True)
    return {_place_of(one): other for one, other in pairs}


def _place_of(code: CodeType) -> _Place:
    return code.co_qualname, code.co_firstlineno


def _bodies(code: CodeType) -> Iterator[CodeType]:
    """Yield what is run once, when a module is loaded: it and the classes in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType) and not one.co_flags & inspect.CO_OPTIMIZED:
            yield from _bodies(one)


def _outside(body: CodeType) -> tuple[object, ...]:
    """Return what a body is but for the functions in it."""
    return body.co_code, body.co_names, [one for one in body.co_consts if not isinstance(one, CodeType)]


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and of the classes in it."""
    for body in _bodies(code):
        yield from (one for one in body.co_consts if isinstance(one, CodeType) and one.co_flags & inspect.CO_OPTIMIZED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
