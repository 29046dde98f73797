"""Which version of Harvester's load balancer API is spoken."""

from __future__ import annotations

import pytest

from harvester_ccm.model.harvester import choose_load_balancers, load_balancers_in


@pytest.mark.parametrize(
    ("served", "current", "chosen"),
    [
        pytest.param(("v1beta1", "v1alpha1"), "v1beta1", "v1beta1", id="both"),
        pytest.param(("v1alpha1", "v1beta1"), "v1alpha1", "v1beta1", id="both, the older one preferred by Harvester"),
        pytest.param(("v1beta1",), "v1alpha1", "v1beta1", id="upgraded"),
        pytest.param(("v1alpha1",), "v1beta1", "v1alpha1", id="before 1.2"),
        pytest.param(("v1alpha1",), "v1alpha1", "v1alpha1", id="still before 1.2"),
        pytest.param((), "v1beta1", "v1beta1", id="nothing"),
        pytest.param((), "v1alpha1", "v1alpha1", id="nothing for a moment"),
        pytest.param(("v2",), "v1beta1", "v1beta1", id="nothing that is spoken"),
        pytest.param(("v2", "v1alpha1"), "v1beta1", "v1alpha1", id="one that is spoken"),
    ],
)
def test_choice(served: tuple[str, ...], current: str, chosen: str) -> None:
    assert choose_load_balancers(served, load_balancers_in(current)) == load_balancers_in(chosen)
