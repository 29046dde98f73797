"""How the help is laid out; which flags are in it is tested with their table."""

from __future__ import annotations

from harvester_ccm.flags import Flag, Group, Kind, command_help, help_text

OWN = (
    Flag("output", Kind.TEXT, "text", Group.GENERAL, "Form of the answer, in few words of many.", shorthand="o"),
    Flag("yes", Kind.BOOL, "false", Group.GENERAL, "Do it."),
    Flag("name", Kind.TEXT, "", Group.GENERAL, f"A long-word-with-hyphens and a {'w' * 40} word."),
)
COMMAND = """\
Usage:
  ccm do [NAME]
  ccm do -f FILE

Does what it says with many words, so
that the line is too long.

Examples:
  # Do it.
  ccm do it

Flags of this command:
  -o, --output=string
        Form of the answer, in few words
        of many. (default text)
  --yes
        Do it.
  --name=string
        A long-word-with-hyphens and a
        wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww
        word.

All flags of the program are accepted
too; ccm --help lists them. In the pod
of the program, those that it runs with
are the defaults.
"""


def test_the_help_of_a_command() -> None:
    shown = command_help(
        program="ccm",
        usages=("do [NAME]", "do -f FILE"),
        examples=(("Do it.", "do it"),),
        meaning=("Does what it says with many words, so that the line is too long.",),
        own=OWN,
        width=40,
    )
    assert shown == COMMAND


BEGINNING = """\
Usage: ccm [command] [flags]

Cloud controller manager for a Kubernetes cluster whose
nodes are Harvester virtual machines: load balancers, node
addresses and the life of nodes.

Commands:
  do
        Do it.
  undo
        Undo it.

Harvester:
  --cloud-config=string
        Kubeconfig file for the Harvester cluster. The
"""
ACCEPTED = """
Accepted without effect:
  These flags are accepted, so that arguments for the Go
  provider keep working.
  Harvester has no cloud routes and hands out no pod ranges:
        --allocate-node-cidrs, --cidr-allocator-type,
        --cluster-cidr, --configure-cloud-routes,
        --route-reconciliation-period
"""


def test_the_help_of_the_program() -> None:
    shown = help_text(program="ccm", width=60, commands=(("do", "Do it."), ("undo", "Undo it.")))
    assert shown.startswith(BEGINNING)
    assert ACCEPTED in shown
