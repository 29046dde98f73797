"""``--tls-cipher-suites``: the names that Go and Kubernetes use, and what the TLS library calls them.

Only suites of TLS 1.2 can be chosen; those of 1.3 are always on, in Go too. Served are those with forward secrecy and
authenticated encryption. Go knows more names, for servers that need them: they are accepted and left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

SERVED: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{go}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for go, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
    )
}
"""Suites of TLS 1.2 by the name in Go."""
ALWAYS: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Suites of TLS 1.3."""
NOT_SERVED: Final = frozenset(
    {
        *(f"TLS_ECDHE_{key}_WITH_AES_{bits}_CBC_SHA" for key in ("ECDSA", "RSA") for bits in (128, 256)),
        *(f"TLS_ECDHE_{key}_WITH_AES_128_CBC_SHA256" for key in ("ECDSA", "RSA")),
        *(f"TLS_ECDHE_{key}_WITH_RC4_128_SHA" for key in ("ECDSA", "RSA")),
        *(f"TLS_RSA_WITH_AES_{rest}" for rest in ("128_CBC_SHA", "256_CBC_SHA", "128_CBC_SHA256")),
        *(f"TLS_RSA_WITH_AES_{rest}" for rest in ("128_GCM_SHA256", "256_GCM_SHA384")),
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_RC4_128_SHA",
    }
)
"""Suites of TLS 1.2 that Go knows and nobody should want: without forward secrecy, or with broken ciphers."""


def chosen_suites(names: Iterable[str]) -> tuple[tuple[str, ...], list[str], list[str]]:
    """Return the suites of TLS 1.2 to serve, in the TLS library's words, the names left out, and the unknown ones.

    No name at all means every suite that is served.
    """
    wanted = list(names) or list(SERVED)
    suites = tuple(dict.fromkeys(SERVED[name] for name in wanted if name in SERVED))
    unknown = [name for name in wanted if name not in SERVED and name not in ALWAYS and name not in NOT_SERVED]
    return suites, [name for name in wanted if name in NOT_SERVED], unknown
