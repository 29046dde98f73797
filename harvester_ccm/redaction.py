"""Text that other programs and tenants wrote: cut first, then without credentials and control characters.

Such text has any length and any content. ``cut`` is the only entrance: views of objects, errors and messages call it
before anything else looks at the text. Whatever follows costs a bounded time.

Credentials are removed as a second line of defense: none is logged on purpose. Recognized are bearer tokens, JSON web
tokens, tokens of Rancher, PEM private keys and their base64 form, user names and passwords in URLs, Basic
authentication, and the secret fields of kubeconfigs and HTTP headers. Base64 certificates are removed as well, because
they look like keys.
"""

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Final

REMOVED: Final = "[removed]"
MAX_MESSAGE: Final = 1024
"""Maximum characters of a message, as in an Event."""
MAX_FOREIGN_TEXT: Final = 1100
"""Maximum characters of a text of others that is looked at: a little more than a message can show."""
MAX_LOG_FIELD: Final = 4096
"""Maximum characters of a text in a field of a log line."""
MAX_LOG_ENTRIES: Final = 100
"""Maximum entries of a list or map in a field of a log line."""
MAX_TRACEBACK: Final = 16_384
"""Maximum characters of a traceback in a log line; its end names the error."""
_BETWEEN_WORDS: Final = " \n\t\"',;"
"""Characters that end a credential in every pattern."""
_SECRET_LENGTH: Final = 200
"""Characters of a word that a pattern looks at before it decides: without a bound, a search would take a time that
grows with the square of the text."""

_SECRET_FIELDS: Final = frozenset(
    {
        "access-token",
        "api-key",
        "authorization",
        "client-key",
        "client-key-data",
        "client-secret",
        "id-token",
        "kubeconfig",
        "passwd",
        "password",
        "private-key",
        "refresh-token",
        "secret",
        "secret-key",
        "token",
    }
)
_NAMES: Final = "|".join(sorted(_SECRET_FIELDS)).replace("-", "[-_]?")
_PATTERNS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL
        ),
        REMOVED,
    ),
    (re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]*"), REMOVED),  # base64 of "-----BEGIN"
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,2}"), REMOVED),
    (re.compile(r"(?<=://)[^\s/?#\"']+@"), f"{REMOVED}@"),  # user:password@ in a URL; a password can contain @
    (
        re.compile(r"(?i)\b(authorization[\"']?\s*[:=]\s*[\"']?(?:basic|digest|negotiate) +)[^\s\"',;]+"),
        rf"\1{REMOVED}",
    ),
    (
        re.compile(rf"(?i)\b(?:kubeconfig-[a-z0-9-]{{1,{_SECRET_LENGTH}}}|token-[a-z0-9]{{5}}):[a-z0-9]+"),
        REMOVED,
    ),  # of Rancher
    # "bearer authentication" in a sentence is not a token. A token has a digit or follows the spelling of the header.
    (re.compile(r"\b(Bearer )(?!\[removed])[^\s\"',;]+"), rf"\1{REMOVED}"),
    (
        re.compile(rf"(?i)\b(bearer\s+)(?=[^\s\"',;]{{0,{_SECRET_LENGTH}}}[0-9])[^\s\"',;]{{8,}}"),
        rf"\1{REMOVED}",
    ),
    (re.compile(rf"(?i)([\"'](?:{_NAMES})[\"']\s*:\s*\")(?!\[removed])[^\"]+"), rf"\1{REMOVED}"),  # JSON: any value
    # JSON inside of JSON, as a webhook quotes a patch.
    (re.compile(rf"(?i)(\\[\"'](?:{_NAMES})\\[\"']\s*:\s*\\\")(?!\[removed])[^\"\\]+"), rf"\1{REMOVED}"),
    # "password: wrong" is not a usual message, so every value is removed.
    (re.compile(r"(?i)\b(passw(?:or)?d[\"']?\s*[:=]\s*[\"']?)(?!\[removed])[^\s\"',;}]+"), rf"\1{REMOVED}"),
    # A field in YAML, JSON or a dict's repr. "token: expired" is a message; a value has a digit and some length.
    (
        re.compile(
            rf"(?i)\b((?:{_NAMES})[\"']?\s*[:=]\s*[\"']?)(?!\[removed])"
            rf"(?=[^\s\"',;}}]{{0,{_SECRET_LENGTH}}}[0-9])[^\s\"',;}}]{{6,}}"
        ),
        rf"\1{REMOVED}",
    ),
)


def cut(text: str) -> str:
    """Return the first characters of a text of others; nothing else looks at the whole text.

    >>> len(cut("x" * 5000))
    1100
    """
    return text[:MAX_FOREIGN_TEXT]


def start_of(text: str, limit: int) -> str:
    """Return the first characters of a text of others, for people: without a word that may go on behind the limit.

    No pattern recognizes a part of a credential. A text that reaches the limit may have been cut there before.

    >>> start_of("it failed at https://me:secret@host", 30)
    'it failed at '
    """
    if len(text) < limit:
        return text
    kept = text[:limit]
    end = max(map(kept.rfind, _BETWEEN_WORDS))
    return kept[: end + 1] or kept


def end_of(text: str, limit: int) -> str:
    """Return the last characters of a text of others, for people: without a word whose beginning does not fit.

    >>> end_of("https://me:secret@host is away", 20)
    ' is away'
    """
    if len(text) <= limit:
        return text
    kept = text[-limit:]
    starts = [start for start in map(kept.find, _BETWEEN_WORDS) if start >= 0]
    return kept[min(starts, default=0) :]


def redact_text(text: str) -> str:
    """Return the text without credentials, in a time that grows linearly with it. The caller has cut the text.

    >>> redact_text("Authorization: Bearer abc")
    'Authorization: Bearer [removed]'
    """
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def one_line(text: str) -> str:
    """Return the text with line ends, control characters and changes of text direction escaped as in JSON.

    Text of other programs must not move the cursor, forge a log line or reverse text.

    >>> one_line("no" + chr(10) + chr(0x202E) + "yes")
    'no\\\\n\\\\u202eyes'
    """
    if text.isprintable():
        return text
    return "".join(map(_written_out, text))


def sanitize(text: str) -> str:
    """Return text of others for the output: cut, in one line, and without credentials."""
    return one_line(redact_text(start_of(text, MAX_FOREIGN_TEXT)))[:MAX_MESSAGE]


def _written_out(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1]


def redact(value: object, key: str = "") -> object:
    """Return a value of a log field without credentials and cut: plain data, other objects as their text.

    ``key`` is the name of the field; the value of a secret field is removed completely.
    """
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if key.lower().replace("_", "-") in _SECRET_FIELDS:
        return REMOVED
    if isinstance(value, Mapping):
        entries = islice(value.items(), MAX_LOG_ENTRIES)
        return {str(name): redact(entry, str(name)) for name, entry in entries}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [redact(entry) for entry in islice(value, MAX_LOG_ENTRIES)]
    return redact_text(start_of(str(value), MAX_LOG_FIELD))
