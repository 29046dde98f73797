"""Values of flags, read and refused as Go's ``pflag`` and ``strconv`` do, error texts included.

Scripts and charts written for the Go provider depend on what is accepted (``t``, ``0x10``, ``1h2m3.5s``, CSV quoting);
operators search the web for the error texts. All functions raise ValueError with that text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Final

from harvester_ccm.flags.definition import FlagValue, Kind

_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
_ESCAPES: Final[Mapping[str, str]] = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_NANOSECONDS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_INTEGER: Final = re.compile(
    r"[+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^.0-9]*)")
_LONGEST: Final = 1 << 63
_LONGEST_DIGITS: Final = 19


def go_quote(text: str) -> str:
    """Return the text in double quotes as Go's ``%q`` prints it.

    >>> print(go_quote('a"b'))
    "a\\"b"
    """
    return f'"{"".join(_quote_character(character) for character in text)}"'


def parse_value(kind: Kind, text: str) -> FlagValue:
    """Return the value that the text stands for: seconds for a duration."""
    return _PARSERS[kind](text)


def parse_bool(text: str) -> bool:
    """Return the truth value; only the spellings of ``strconv.ParseBool`` are known."""
    if text not in _BOOLEANS:
        raise ValueError(f"strconv.ParseBool: parsing {go_quote(text)}: invalid syntax")
    return _BOOLEANS[text]


def parse_int(text: str, bits: int = 64) -> int:
    """Return the integer; ``0x``, ``0b``, ``0o`` and a leading ``0`` choose the base, as in Go source."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    digits = text.lstrip("+-").replace("_", "")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    value = int(digits, 8 if octal else 0) * (-1 if text[0] == "-" else 1)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return value


def parse_level(text: str) -> int:
    """Return a klog verbosity."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: invalid syntax")
    if len(text.lstrip("0")) > 10 or int(text) >= 1 << 31:
        raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: value out of range")
    return int(text)


def parse_float(text: str) -> float:
    """Return a decimal number."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"strconv.ParseFloat: parsing {go_quote(text)}: invalid syntax")
    return float(text)


def parse_duration(text: str) -> float:
    """Return the seconds that a Go duration stands for.

    >>> parse_duration("1h2m3.5s")
    3723.5
    """
    invalid = ValueError(f"time: invalid duration {_quote_bytes(text)}")
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, position = 0, 0
    while position < len(rest) or not rest:
        part = _DURATION_PART.match(rest, position)
        if part is None or not (part[1] or part[2]) or len(part[1].lstrip("0")) > _LONGEST_DIGITS:
            raise invalid
        unit = part[3]
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quote_bytes(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {_quote_bytes(unit)} in duration {_quote_bytes(text)}")
        # A fraction's digits beyond the nanosecond do not count.
        fraction = (part[2] or "")[:18]
        total += int(part[1].lstrip("0") or "0") * _NANOSECONDS[unit]
        total += int(fraction or "0") * _NANOSECONDS[unit] // 10 ** len(fraction)
        if total >= _LONGEST:
            raise invalid
        position = part.end()
    return (-total if text[0] == "-" else total) / 1_000_000_000


def parse_ip(text: str) -> str:
    """Return the canonical form of an address without a zone."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        address = None
    if address is None or "%" in str(address):
        raise ValueError(f"failed to parse IP: {go_quote(text)}")
    return str(address)


def parse_words(text: str) -> tuple[str, ...]:
    """Return the fields of one CSV record; an empty text has none. Columns in errors count bytes from 1."""
    record = text.lstrip("\r\n").split("\n", 1)[0].removesuffix("\r")
    if not record:
        if text:
            raise ValueError("EOF")
        return ()
    fields: list[str] = []
    position = 0
    while True:
        field, position = _read_field(record, position)
        fields.append(field)
        if position >= len(record):
            return tuple(fields)
        position += 1
        if position == len(record):
            return (*fields, "")


def _read_field(record: str, start: int) -> tuple[str, int]:
    """Return a CSV field and the position of the comma behind it, or of the end."""
    if not record.startswith('"', start):
        comma = record.find(",", start)
        end = len(record) if comma < 0 else comma
        quote = record.find('"', start, end)
        if quote >= 0:
            raise ValueError(f'parse error on line 1, column {_column(record, quote)}: bare " in non-quoted-field')
        return record[start:end], end
    field, position = "", start + 1
    while True:
        quote = record.find('"', position)
        if quote < 0:
            raise ValueError(_quote_fault(record, len(record)))
        field += record[position:quote]
        position = quote + 1
        if record.startswith('"', position):
            field += '"'
            position += 1
        elif position == len(record) or record[position] == ",":
            return field, position
        else:
            raise ValueError(_quote_fault(record, quote))


def _quote_fault(record: str, position: int) -> str:
    column = _column(record, position)
    return f'parse error on line 1, column {column}: extraneous or missing " in quoted-field'


def _column(record: str, position: int) -> int:
    return len(record[:position].encode("utf-8", "surrogateescape")) + 1


def _quote_character(character: str) -> str:
    code = ord(character)
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    if 0xDC80 <= code <= 0xDCFF:  # a byte of the argument that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _quote_bytes(text: str) -> str:
    """Return the text in double quotes as Go's ``time`` prints it: bytes beyond ASCII one by one."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').encode("utf-8", "surrogateescape")
    return '"' + "".join(chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}" for byte in escaped) + '"'


def _parse_version(text: str) -> bool:
    return text == "raw" or text.startswith("v") or parse_bool(text)


_PARSERS: Final[Mapping[Kind, Callable[[str], FlagValue]]] = {
    Kind.BOOL: parse_bool,
    Kind.VERSION: _parse_version,
    Kind.TEXT: str,
    Kind.WORDS: parse_words,
    Kind.INT: parse_int,
    Kind.INT32: lambda text: parse_int(text, 32),
    Kind.LEVEL: parse_level,
    Kind.FLOAT: parse_float,
    Kind.DURATION: parse_duration,
    Kind.IP: parse_ip,
}
