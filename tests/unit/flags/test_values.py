"""Values of flags: what Go accepts is accepted, what it refuses is refused in its words."""

from __future__ import annotations

import pytest

from harvester_ccm.flags import Kind
from harvester_ccm.flags.definition import FlagValue
from harvester_ccm.flags.values import go_quote, parse_value


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        *[pytest.param(Kind.BOOL, text, True, id=text) for text in ("1", "t", "T", "true", "TRUE", "True")],
        *[pytest.param(Kind.BOOL, text, False, id=text) for text in ("0", "f", "F", "false", "FALSE", "False")],
        (Kind.INT, "-12", -12),
        (Kind.INT, "+0x1F", 31),
        (Kind.INT, "0b101", 5),
        (Kind.INT, "0o17", 15),
        (Kind.INT, "017", 15),
        (Kind.INT, "1_000", 1000),
        (Kind.INT, "0", 0),
        (Kind.INT32, "2147483647", 2147483647),
        (Kind.LEVEL, "010", 10),
        (Kind.FLOAT, "20", 20.0),
        (Kind.FLOAT, ".5e1", 5.0),
        (Kind.DURATION, "0", 0.0),
        (Kind.DURATION, "-1.5h", -5400.0),
        (Kind.DURATION, "1h2m3.5s", 3723.5),
        (Kind.DURATION, "1ms2us3ns", 0.001002003),
        (Kind.DURATION, "2\u00b5s", 0.000002),
        (Kind.DURATION, "2\u03bcs", 0.000002),
        (Kind.DURATION, ".5s", 0.5),
        (Kind.DURATION, "5.s", 5.0),
        (Kind.IP, " ::FFFF:0:1 ", "::ffff:0:1"),
        (Kind.IP, "10.0.0.1", "10.0.0.1"),
        (Kind.WORDS, "", ()),
        (Kind.WORDS, "a,,b,", ("a", "", "b", "")),
        (Kind.WORDS, ",", ("", "")),
        (Kind.WORDS, ' a ,"b,""c"""', (" a ", 'b,"c"')),
        (Kind.WORDS, "a,b\n", ("a", "b")),
    ],
)
def test_values(kind: Kind, text: str, expected: FlagValue) -> None:
    assert parse_value(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (Kind.INT, "x", 'strconv.ParseInt: parsing "x": invalid syntax'),
        (Kind.INT, "08", 'strconv.ParseInt: parsing "08": invalid syntax'),
        (Kind.INT, " 1", 'strconv.ParseInt: parsing " 1": invalid syntax'),
        (Kind.INT, "9223372036854775808", 'strconv.ParseInt: parsing "9223372036854775808": value out of range'),
        (Kind.INT32, "2147483648", 'strconv.ParseInt: parsing "2147483648": value out of range'),
        (Kind.LEVEL, "2147483648", 'strconv.ParseUint: parsing "2147483648": value out of range'),
        (Kind.LEVEL, "debug", 'strconv.ParseUint: parsing "debug": invalid syntax'),
        (Kind.FLOAT, "fast", 'strconv.ParseFloat: parsing "fast": invalid syntax'),
        (Kind.DURATION, "", 'time: invalid duration ""'),
        (Kind.DURATION, "+", 'time: invalid duration "+"'),
        (Kind.DURATION, ".s", 'time: invalid duration ".s"'),
        (Kind.DURATION, "10", 'time: missing unit in duration "10"'),
        (Kind.DURATION, "1d", 'time: unknown unit "d" in duration "1d"'),
        (Kind.DURATION, "1s-2s", 'time: unknown unit "s-" in duration "1s-2s"'),
        (Kind.DURATION, "9999999h", 'time: invalid duration "9999999h"'),
        (Kind.DURATION, "1" + "0" * 30 + "s", f'time: invalid duration "1{"0" * 30}s"'),
        (Kind.IP, "10.0.0.01", 'failed to parse IP: "10.0.0.01"'),
        (Kind.IP, "fe80::1%eth0", 'failed to parse IP: "fe80::1%eth0"'),
        (Kind.IP, "", 'failed to parse IP: ""'),
        (Kind.WORDS, 'a,b"', 'parse error on line 1, column 4: bare " in non-quoted-field'),
        (Kind.WORDS, '\u00e4"', 'parse error on line 1, column 3: bare " in non-quoted-field'),
        (Kind.WORDS, '"abc', 'parse error on line 1, column 5: extraneous or missing " in quoted-field'),
        (Kind.WORDS, '"a"b', 'parse error on line 1, column 3: extraneous or missing " in quoted-field'),
        (Kind.WORDS, "\n", "EOF"),
    ],
)
def test_refused_values(kind: Kind, text: str, expected: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole text is compared below
        parse_value(kind, text)
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a"b\\', '"a\\"b\\\\"'),
        ("tab\tnul\0", '"tab\\tnul\\x00"'),
        ("\u00e9\u2028\ufeff\U000e0001", '"\u00e9\\u2028\\ufeff\\U000e0001"'),
        (b"\xff".decode("utf-8", "surrogateescape"), '"\\xff"'),
    ],
)
def test_quoting(text: str, expected: str) -> None:
    assert go_quote(text) == expected
