"""Tables and paragraphs on terminals of any width."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
import yaml

from harvester_ccm.commands.paint import painter
from harvester_ccm.commands.render import Form, Output, hanging, rendered, table_row, yaml_text


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
    Output(stream, form=Form.JSON, width=80).document({"name": "Zürich"})
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
    "steps": [{"request": "patch", "diff": ["+ a"]}, {"request": "delete", "diff": []}],
    "written": False,
}


def test_an_answer_for_people() -> None:
    stream = io.StringIO()
    Output(stream, width=60).answer(ANSWER, "Add --yes.")
    assert stream.getvalue().splitlines() == [
        "Cluster:          demo",
        "Load balancers:",
        "  NAME       WORKLOAD TYPE  POOL",
        "  a          vm             -",
        "  long-name  cluster        lan",
        "Reasons:",
        "  word word word word word word word word word word word",
        "    word word word word word word word word word",
        "  two",
        "Steps:",
        "  - Request:      patch",
        "    Diff:",
        "      + a",
        "  - Request:      delete",
        "Written:          false",
        "",
        "Add --yes.",
    ]


def test_an_answer_for_scripts() -> None:
    stream = io.StringIO()
    Output(stream, form=Form.JSON).answer(ANSWER, "Add --yes.")
    assert json.loads(stream.getvalue()) == ANSWER


@pytest.mark.parametrize("form", Form)
def test_what_objects_hold_writes_nothing_on_the_terminal(form: Form) -> None:
    nasty = "a\x1b[31mb\rc\x07d\x7fe\x9bf\u2028g\u202eh\nSteps: none"
    stream = io.StringIO()
    document = {
        "network": nasty,
        "reasons": [nasty],
        "table": [{"address": nasty, "name": "x"}],
        "nested": {"a": [nasty]},
    }
    Output(stream, form=form).answer(document, f"Look at {nasty}.")
    written = stream.getvalue()
    assert all(character == "\n" or character.isprintable() for character in written)
    assert not any(line.strip() == "Steps: none" for line in written.splitlines())
    if form is not Form.TEXT:
        assert yaml.safe_load(written) == document


def test_yaml_keeps_letters_and_order() -> None:
    assert yaml_text({"name": "Zürich", "a": [{"b": None}]}) == "name: Zürich\na:\n- b: null"


def test_colours_are_put_around_the_words_and_nowhere_else() -> None:
    paint = painter(io.StringIO())
    lines = ["Service: shop/web", "both       Nodes   FAILED   none", "    → do it", "plain [red]words[/red] :smile:"]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", paint(line)) for line in lines] == lines
    assert paint(lines[1]) == "both       Nodes   \x1b[1;31mFAILED\x1b[0m   none"
    assert paint(lines[3]) == lines[3]


@pytest.mark.parametrize("odd", ["", chr(0x202E), chr(0x2028), chr(7)], ids=["plain", "direction", "line end", "bell"])
def test_yaml_reads_back_as_it_was_and_shows_nothing_odd(odd: str) -> None:
    document = {"name": f"büro{odd}", "message": f"{odd}{'so many words that they pass ' * 4}", "a": [1, None, "1"]}
    text = yaml_text(document)
    assert yaml.safe_load(text) == document
    assert list(yaml.safe_load(text)) == list(document)
    assert text.replace("\n", "").isprintable()
    assert len(text.splitlines()) == 6
    assert ("büro" in text) == (odd in ("", chr(7)))


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        ({"a": "one\ntwo"}, ["A:                one\\ntwo"]),
        ({"a": "", "b": True, "c": 7}, ["B:                true", "C:                7"]),
        ([{"a": "1"}, {"b": "2"}], ["- A:              1", "- B:              2"]),
        (
            [{"a": "1", "b": [2]}, {"a": "3", "b": [4]}],
            ["- A:              1", "  B:", "    2", "- A:              3", "  B:", "    4"],
        ),
        ([{"a": "1", "b": {"c": 2}}], ["- A:              1", "  B:", "    C:            2"]),
        ([{"a": "1", "b": 2, "c": None}, {"a": "", "b": 3, "c": ""}], ["A  B", "1  2", "-  3"]),
        (["one\ntwo"], ["one\\ntwo"]),
    ],
)
def test_what_is_a_table_and_what_is_a_list(value: Any, lines: list[str]) -> None:
    assert list(rendered(value, width=80)) == lines


def test_nothing_follows_an_answer_without_a_sentence() -> None:
    stream = io.StringIO()
    Output(stream, width=80).answer({"a": "1", "b": ""})
    assert stream.getvalue() == "A:                1\n"
