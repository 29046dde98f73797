"""Names of load balancers: addresses are remembered by them, so they can never change."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harvester_ccm.plan.service.ownership import load_balancer_name

UID = "6f1c2a34-9b7d-4e58-8a10-3c5d7e9f0b12"

SHIPPED = {
    "plain": (("demo", "default", "nginx", UID), "demo-default-nginx-27a92c93"),
    "cluster starts with a digit": (("8080-lab", "default", "nginx", UID), "a8080-lab-default-nginx-1526ee57"),
    "no cluster name": (("", "default", "nginx", UID), "a-default-nginx-a028be36"),
    "cluster name too long for a label": (("b" * 64, "default", "nginx", UID), f"a{'b' * 54}d9032966"),
    "cluster name Harvester refuses": (("My.Cluster", "default", "nginx", UID), "aMy.Cluster-default-nginx-7235c6f3"),
    "ingress of RKE2 with the default cluster name": (
        ("kubernetes", "kube-system", "rke2-ingress-nginx-controller", "0d9e8f7a-6b5c-4d3e-8f2a-1b0c9d8e7f6a"),
        "kubernetes-kube-system-rke2-ingress-nginx-controller-d55039ed",
    ),
    "readable part is cut": (
        (
            "manufacturing-line-4",
            "shop-floor-telemetry",
            "message-broker-public",
            "c0ffee00-1234-4abc-9def-001122334455",
        ),
        "manufacturing-line-4-shop-floor-telemetry-message-broke5ebeeaeb",
    ),
    "readable part fits exactly": (
        ("hq", "n" * 20, "s" * 30, "a1a1a1a1-b2b2-4c3c-8d4d-e5e5e5e5e5e5"),
        f"hq-{'n' * 20}-{'s' * 30}-2fed9db1",
    ),
}


@pytest.mark.parametrize(("parts", "name"), SHIPPED.values(), ids=SHIPPED.keys())
def test_names_ever_shipped(parts: tuple[str, str, str, str], name: str) -> None:
    assert load_balancer_name(*parts) == name


ENDS = st.sampled_from(string.ascii_lowercase + string.digits)
LABEL = ENDS | st.tuples(ENDS, st.text("-" + string.ascii_lowercase + string.digits, max_size=61), ENDS).map("".join)


@given(cluster=LABEL, namespace=LABEL, name=LABEL, uid=st.uuids().map(str))
def test_valid_parts_make_a_valid_name(cluster: str, namespace: str, name: str, uid: str) -> None:
    made = load_balancer_name(cluster, namespace, name, uid)
    assert len(made) <= 63
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", made)
