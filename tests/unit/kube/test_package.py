"""The package ``kube`` can be used by another program: it knows no product, and imports nothing of this one."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harvester_ccm import kube

MODULES: Final = sorted(Path(str(kube.__file__)).parent.glob("*.py"))
SHARED: Final = {"harvester_ccm.netip", "harvester_ccm.redaction"}
"""Modules of the product that the package imports: addresses and text, without a cluster."""
WORDS_OF_THE_PRODUCT: Final = re.compile(
    r"harvester|cloud.?provider|cloud.?config|rancher|rke2|k3s|talos|wrangler|kube.?virt|kube.?vip|generate.?addon"
    r"|guest|\bvmis?\b|\bvms?\b|virtual machine|load.?balancer|\bip.?pools?\b|dhcp|\bccm|\bthis controller\b"
    r"|\bcharts?\b|(?<![\w-])--[a-z]",
    re.IGNORECASE,
)
KINDS_OF_THE_PRODUCT: Final = re.compile(r"\b(Services?|Nodes?|EndpointSlices?|ConfigMaps?)\b")


def text_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a module, without the imports, which name the package itself."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not re.match(r"\s*(from|import) ", line):
            yield number, line


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_has_no_word_of_the_product(path: Path) -> None:
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for number, line in text_of(path)
        if WORDS_OF_THE_PRODUCT.search(line) or KINDS_OF_THE_PRODUCT.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_known"),
    [
        ("of the guest cluster", True),
        ("set --kubeconfig", True),
        ("a VM has 10 KB", True),
        ("kube-vip.io/ignore", True),
        ("a Service or a Node", True),
        ("a - b --", False),
        ("the ServiceAccount of a pod", False),
        ("yaml.ScalarNode", False),
        ("KUBERNETES_SERVICE_HOST", False),
    ],
)
def test_words_of_the_product_are_found(line: str, *, is_known: bool) -> None:
    found = WORDS_OF_THE_PRODUCT.search(line) or KINDS_OF_THE_PRODUCT.search(line)
    assert bool(found) is is_known


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_imports_only_the_package_and_what_it_shares(path: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    modules = {str(node.module) for node in imports if str(node.module).startswith("harvester_ccm")}
    # With ``from harvester_ccm import x``, the module is the product itself.
    assert {name for name in modules if not name.startswith("harvester_ccm.kube")} <= SHARED
