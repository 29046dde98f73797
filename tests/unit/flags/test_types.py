"""Values of flags: valid spellings, and errors that name the valid values."""

from ipaddress import ip_network
from pathlib import Path

import pytest

from harvester_ccm.config import CONTROLLERS
from harvester_ccm.flags import types
from harvester_ccm.flags.types import Kind

RANGES = (ip_network("10.0.0.0/8"), ip_network("fd00::1"))


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *[(types.SWITCH, text, True) for text in ("1", "t", "T", "true", "TRUE", "True")],
        *[(types.SWITCH, text, False) for text in ("0", "f", "F", "false", "FALSE", "False")],
        *[(types.VERSION, text, True) for text in ("true", "raw", "v9")],
        (types.INT, "-12", -12),
        (types.INT, "+0x1F", 31),
        (types.INT, "017", 15),
        (types.INT, "1_000", 1000),
        (types.INT, "0", 0),
        (types.PORT, "65535", 65535),
        (types.DURATION, "0", 0.0),
        (types.DURATION, "1h2m3.5s", 3723.5),
        (types.DURATION, "1ms2us3ns", 0.001002003),
        (types.DURATION, "2\u00b5s", 0.000002),
        (types.DURATION, "+.5s", 0.5),
        (types.DURATION, "5.s", 5.0),
        (types.IP, " FD00::0:1 ", "fd00::1"),
        (types.FILE, "", None),
        (types.FILE, "/a", Path("/a")),
        (types.LIST, "", ()),
        (types.LIST, "a,,b,", ("a", "", "b", "")),
        (types.LIST, ' a ,"b,""c"""\n', (" a ", 'b,"c"')),
        (types.CONTROLLER_LIST, "*,-service-lb-controller", ("*", "-service-lb-controller")),
        (types.NETWORK, "", None),
        (types.NETWORK, "vlan10", "default/vlan10"),
        (types.NETWORK, "infra/vlan10", "infra/vlan10"),
        (types.RANGES, "127.0.0.1, ,10.0.0.0/8", (ip_network("127.0.0.1"), ip_network("10.0.0.0/8"))),
        (types.NODE_RANGES, " , ,", ()),
        (types.NODE_RANGES, " 10.1.2.3/8 ,FD00::1", RANGES),
        (types.NODE_RANGES, "::ffff:10.0.0.1/104,fd00::1%eth0", RANGES),
        (types.TLS_VERSION, "VersionTLS10", "1.2"),
        (types.TLS_VERSION, "VersionTLS13", "1.3"),
    ],
)
def test_valid_values(kind: Kind, text: str, value: object) -> None:
    assert kind.parse(text) == value


@pytest.mark.parametrize(
    ("kind", "texts", "error"),
    [
        (types.SWITCH, ["", "yes"], "expected true or false"),
        (types.INT, ["", "x", "08", "1.5"], "expected a whole number"),
        (types.between(2, 9), ["1", "-3", "10", "9" * 20], "expected a number from 2 to 9"),
        (types.DURATION, ["2562048h", "9" * 400 + "h"], "expected a duration of at most 2562047h"),
        (types.PORT, ["-1", "65536"], "expected a port up to 65535, or 0 for none"),
        (
            types.DURATION,
            ["", ".s", "10", "1d", "1s-2s", "-1s", "1e3s"],
            "expected a duration such as 90s, 5m or 1h30m",
        ),
        (types.PERIOD, ["0", "0s"], "expected a duration above zero"),
        (types.IP, ["", "10.0.0.01", "node"], "expected an IP address"),
        (types.LIST, ['"abc', '"a"b', "a\nb"], "expected a comma-separated list"),
        (
            types.CONTROLLER_LIST,
            ["service", "*,-loadbalancer"],
            f"expected '*' or names out of {', '.join(CONTROLLERS)}",
        ),
        (types.NETWORK, ["a/", "/b", "a/b/c"], "expected namespace/name, or a name in the namespace default"),
        (types.RANGES, ["10.0.0.0/8,junk"], "expected CIDRs or IP addresses, 'junk' is neither"),
        (types.NODE_RANGES, ["010.0.0.1"], "expected CIDRs or IP addresses, '010.0.0.1' is neither"),
        (types.NODE_RANGES, ["10.0.0.1,10.1.0.0/16", "::1,fd00::1"], "expected at most one IPv4 and one IPv6 entry"),
        (
            types.NODE_RANGES,
            ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.7.0/24", "fe80::1", "224.0.1.0", "0.0.0.0", "::"],
            "expected addresses of nodes: no loopback, link-local, multicast or unspecified ones",
        ),
        (types.one_of({"": 0, "a": 1, "b": 2}), ["c"], "expected a or b"),
    ],
)
def test_invalid_values(kind: Kind, texts: list[str], error: str) -> None:
    for text in texts:
        with pytest.raises(ValueError, match="expected") as raised:
            kind.parse(text)
        assert str(raised.value) == error
