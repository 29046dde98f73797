"""The cluster name: what is trimmed, and what the operator is told."""

from __future__ import annotations

import pytest

from harvester_ccm.flags.cluster_name import read_cluster_name

RULE = "is not a DNS label (at most 63 lower-case letters, digits and '-', with a letter or digit at both ends): "
REFUSED = "Harvester will refuse every load balancer, because its name and labels are built from it; "
DOTS = (
    "Harvester will refuse load balancers with health checks, because it makes a Service of the same name, and that "
    "cannot have dots"
)
SHARED = (
    "like that of every cluster without a name: clusters in one Harvester namespace cannot be told apart, IP pools for "
    "a named cluster do not match, and Harvester does not clean up after the cluster. Set a name of its own (chart: "
    "global.cattle.clusterName) before the first Service"
)


@pytest.mark.parametrize(
    ("raw", "name", "warnings"),
    [
        pytest.param("atlas-1", "atlas-1", (), id="good"),
        pytest.param("8080-lab", "8080-lab", (), id="digit first"),
        pytest.param(
            "\"demo'\n",
            "demo",
            ('--cluster-name "\\"demo\'\\n" was trimmed of white space and quotes; "demo" is used',),
            id="quoted",
        ),
        pytest.param(
            "kubernetes", "kubernetes", (f'--cluster-name is the default "kubernetes", {SHARED}',), id="default"
        ),
        pytest.param(
            " ",
            "",
            (
                '--cluster-name " " was trimmed of white space and quotes; "" is used',
                f"--cluster-name is empty, {SHARED}",
            ),
            id="blank",
        ),
        *[
            pytest.param(
                name, name, (f'--cluster-name "{name}" {RULE}{REFUSED}set a name of that form',), id=f"refused {name}"
            )
            for name in ("My.Cluster", "atlas_1", "-atlas", "atlas-", "a..b", "atlas.", "a" * 64)
        ],
        pytest.param(
            "lab.example",
            "lab.example",
            (f'--cluster-name "lab.example" {RULE}{DOTS}',),
            id="dots",
        ),
    ],
)
def test_cluster_name(raw: str, name: str, warnings: tuple[str, ...]) -> None:
    assert read_cluster_name(raw) == (name, warnings)
