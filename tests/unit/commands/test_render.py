"""Tables and paragraphs on terminals of any width."""

from __future__ import annotations

import io
import json

import pytest

from harvester_ccm.commands.render import Output, hanging, rendered, table_row


def test_a_table_is_as_wide_as_its_cells() -> None:
    entries = [{"name": "first-one", "state": "well"}, {"name": "b", "state": "word " * 14}]
    assert "\n".join(rendered(entries, width=70)).splitlines() == [
        "NAME       STATE",
        "first-one  well",
        f"b          {'word ' * 11}word",
        "           word word",
    ]


@pytest.mark.parametrize("width", [20, 80, 200])
def test_long_words_stay_whole(width: int) -> None:
    word = "x" * 100
    assert word in hanging(f"a {word} b", first="- ", width=width)


def test_a_row_without_text_has_no_blanks_at_its_end() -> None:
    assert table_row(["a", ""], [5], width=80) == "a"


def test_documents_keep_their_letters() -> None:
    stream = io.StringIO()
    Output(stream, as_json=True, width=80).document({"name": "Zürich"})
    assert stream.getvalue() == '{\n  "name": "Zürich"\n}\n'


ANSWER = {
    "cluster": "demo",
    "doubts": [],
    "owner": None,
    "loadBalancers": [
        {"name": "a", "workloadType": "vm", "pool": None, "uid": ""},
        {"name": "long-name", "workloadType": "cluster", "pool": "lan", "uid": ""},
    ],
    "reasons": ["word " * 20, "two"],
    "steps": [{"patch": {"metadata": {"labels": {}, "finalizers": None}}}, {"event": {"message": "m"}}],
    "written": False,
}


def test_an_answer_for_people() -> None:
    stream = io.StringIO()
    Output(stream, as_json=False, width=60).answer(ANSWER, "Add --yes.")
    assert stream.getvalue().splitlines() == [
        "Cluster: demo",
        "Load balancers:",
        "  NAME       WORKLOAD TYPE  POOL",
        "  a          vm             -",
        "  long-name  cluster        lan",
        "Reasons:",
        "  - word word word word word word word word word word word",
        "    word word word word word word word word word",
        "  - two",
        "Steps:",
        "  - Patch:",
        "      Metadata:",
        "        Labels: {}",
        "        Finalizers: null",
        "  - Event:",
        "      Message: m",
        "Written: false",
        "",
        "Add --yes.",
    ]


def test_an_answer_for_scripts() -> None:
    stream = io.StringIO()
    Output(stream, as_json=True).answer(ANSWER, "Add --yes.")
    assert json.loads(stream.getvalue()) == ANSWER


@pytest.mark.parametrize("as_json", [True, False])
def test_what_objects_hold_writes_nothing_on_the_terminal(as_json: bool) -> None:
    nasty = "a\x1b[31mb\rc\x07d\x7fe\x9bf\u2028g\u202eh\nSteps: none"
    stream = io.StringIO()
    document = {
        "network": nasty,
        "reasons": [nasty],
        "table": [{"address": nasty, "name": "x"}],
        "nested": {"a": [nasty]},
    }
    Output(stream, as_json=as_json).answer(document, f"Look at {nasty}.")
    written = stream.getvalue()
    assert all(character == "\n" or character.isprintable() for character in written)
    assert not any(line.strip() == "Steps: none" for line in written.splitlines())
    if as_json:
        assert json.loads(written) == document
