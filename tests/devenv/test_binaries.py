"""The pinned versions of the programs."""

import re
from pathlib import Path

import pytest

from devenv import binaries

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("name", "version"), binaries.OTHER_KUBERNETES.items())
def test_other_versions_of_kubernetes_are_those_of_their_modules(name: str, version: str) -> None:
    module = (ROOT / "devenv" / f"gobuild-kubernetes-{name}" / "go.mod").read_text()
    assert re.findall(r"k8s\.io/kubernetes (v\S+)", module) == [version]
    assert f"k8s.io/api v0.{version.removeprefix('v1.')}\n" in module
    flags = binaries.linker_flags(f"gobuild-kubernetes-{name}").split()
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        assert f"{package}.gitVersion={version}" in flags
        assert f"{package}.gitMinor={version.split('.')[1]}" in flags
