"""Which HTTP proxy the environment names for a server."""

import pytest

from harvester_ccm.kube.proxy import proxy_for

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "no_proxy", "through_proxy"),
    [
        ("https://10.43.0.1:443", "", True),
        ("https://10.43.0.1:443", "10.43.0.0/16", False),
        ("https://10.43.0.1:443", "10.42.0.0/16, 10.43.0.0/16 ,.svc", False),
        ("https://10.43.0.1:443", "10.42.0.0/16", True),
        ("https://10.43.0.1:443", "10.43.0.1", False),
        ("https://10.43.0.1:6443", "10.43.0.1:443", True),
        ("https://10.43.0.1", "10.43.0.1:443", False),
        ("https://harvester.example.org", "example.org", False),
        ("https://harvester.example.org", ".example.org", False),
        ("https://harvester.example.org", "*.example.org", False),
        ("https://example.org", ".example.org", True),
        ("https://notexample.org", "example.org", True),
        ("https://harvester.example.org:6443", "example.org:6443", False),
        ("https://harvester.example.org:6443", "example.org:443", True),
        ("https://HARVESTER.example.org.", "Example.Org", False),
        ("https://harvester.example.org", "*", False),
        ("https://harvester.example.org", "10.0.0.0/8", True),
        ("https://[fd00::1]:6443", "fd00::/8", False),
        ("https://[fd00::1]:6443", "fd00::1", False),
        ("https://[fd00::1]:6443", "FD00:0::1", False),
        ("https://[fd00::1]:6443", "[fd00:0::1]:6443", False),
        ("https://10.43.0.1:6443", "::ffff:10.43.0.1", False),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", False),
        ("https://[fd00::1]:6443", "[fd00::1]", False),
        ("https://[fd00::1]:6443", ":6443", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.1:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server: str, no_proxy: str, through_proxy: bool) -> None:
    found = proxy_for(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy})

    assert found == (PROXY if through_proxy else None)


@pytest.mark.parametrize(
    ("server", "environment", "expected"),
    [
        ("https://host", {}, None),
        ("https://host", {"http_proxy": PROXY}, None),
        ("http://host", {"http_proxy": PROXY}, PROXY),
        ("https://host", {"https_proxy": "proxy:3128"}, PROXY),
        ("https://host", {"HTTPS_PROXY": "https://upper", "https_proxy": "https://lower"}, "https://upper"),
        ("https://host", {"https_proxy": PROXY, "no_proxy": "host"}, None),
    ],
)
def test_proxy_is_taken_for_the_scheme_of_the_server(
    server: str, environment: dict[str, str], expected: str | None
) -> None:
    assert proxy_for(server, environment) == expected
