"""The package ``kube`` can be used by another program: it knows no product. Contracts check what it imports."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from harvester_ccm import kube

MODULES: Final = sorted(Path(str(kube.__file__)).parent.glob("*.py"))
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
