#!/usr/bin/env python3
"""Replace the placeholders of ``deploy/names.toml`` in all files of the checkout.

Without arguments, by the names in that file; with ``PLACEHOLDER=NAME``, by these. A placeholder without a name stays.
Uses only Python's standard library, because the release workflow installs nothing for it.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path.cwd()
NAMES = Path("deploy") / "names.toml"
PLACES = (
    ".github",
    "deploy",
    "devenv",
    "docs",
    "tests",
    "mkdocs.yml",
    "CHANGELOG.md",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
)
"""Where placeholders can be."""
OMITTED = (NAMES, Path(".github") / "workflows", Path("tests") / "deploy" / "test_names.py")


def files() -> Iterator[Path]:
    """Yield the files that can contain placeholders."""
    for place in PLACES:
        path = ROOT / place
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in found:
            if file.is_file() and not is_omitted(file.relative_to(ROOT)):
                yield file


def is_omitted(file: Path) -> bool:
    """Return whether a file is compiled, or names the placeholders on purpose."""
    return "__pycache__" in file.parts or any(file.is_relative_to(omitted) for omitted in OMITTED)


def replace(names: Mapping[str, str]) -> list[Path]:
    """Replace all placeholders that have a name, and return the changed files."""
    changed = []
    for file in files():
        old = file.read_bytes()
        new = old
        for placeholder, name in names.items():
            if name:
                new = new.replace(placeholder.encode(), name.encode())
        if new != old:
            file.write_bytes(new)
            changed.append(file.relative_to(ROOT))
    return changed


def main() -> int:
    """Entry point. Returns 1 if an argument names no placeholder."""
    placeholders = tomllib.loads((ROOT / NAMES).read_text(encoding="utf-8"))
    names = dict(word.partition("=")[::2] for word in sys.argv[1:]) or placeholders
    if unknown := sorted(names.keys() - placeholders.keys()):
        print(f"no placeholders of {NAMES}: {', '.join(unknown)}", file=sys.stderr)
        return 1
    for file in replace(names):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
