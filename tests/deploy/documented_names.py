"""What the pages name, and whether it exists.

Each function returns the names in the text of a page that exist nowhere. ``CHECKS`` has them all.
"""

import ast
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Final

import yaml

from devenv.helm import CHART
from devenv.reference import described_metrics
from harvester_ccm import names
from harvester_ccm.cli import main
from harvester_ccm.commands import COMMANDS
from harvester_ccm.flags import FLAGS, parse_command_line

ROOT: Final = Path(__file__).parents[2]
PRODUCT: Final = ROOT / "harvester_ccm"
SCRIPT: Final = ROOT / "scripts" / "generate_addon.sh"


_FENCE: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+")


def prose(text: str) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", text)


def code_blocks(text: str, *languages: str) -> Iterator[str]:
    for block in _FENCE.finditer(text):
        if block["language"] in languages:
            yield "\n".join(line.removeprefix(block["indent"]) for line in block["body"].splitlines())


def words_in_code(text: str) -> list[str]:
    """Return the texts in backticks, outside of code blocks."""
    return _CODE.findall(prose(text))


@cache
def product_texts() -> str:
    """The texts in the modules of the controller; a value that is put into one is a NUL."""
    texts = []
    for file in PRODUCT.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            match node:
                case ast.Constant() if id(node) in docstrings:
                    pass
                case ast.Constant(value=str(value)):
                    texts.append(value)
                case ast.JoinedStr(values=values):
                    texts.append("".join(_literal(part) for part in values))
    return "\n".join(texts)


def _literal(part: ast.expr) -> str:
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "\0"


@cache
def reasons() -> frozenset[str]:
    """Reasons of Events and conditions."""
    return frozenset({*names.Reason, *names.NodeReason})


@cache
def alerts() -> frozenset[str]:
    groups = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]
    return frozenset(rule["alert"] for group in groups for rule in group["rules"])


def unknown_reasons(text: str) -> list[str]:
    """Return reasons and alerts that do not exist: after the word Event or reason, or in the first cell of a row."""
    named = re.findall(r"\b(?:Events?|reason) `([A-Z]\w+)`", prose(text))
    in_rows = re.findall(r"^\| `(HarvesterCcm\w+)`", prose(text), re.MULTILINE)
    return [name for name in named if name not in reasons()] + [name for name in in_rows if name not in alerts()]


@cache
def known_flags() -> frozenset[str]:
    """The flags in the help texts of the controller, its commands and the credential script."""
    script = subprocess.run(["bash", str(SCRIPT), "-h"], check=True, capture_output=True, text=True).stdout
    with redirect_stdout(StringIO()) as program:
        for command in ((), *((command.name,) for command in COMMANDS)):
            assert main(["harvester-ccm", *command, "--help"], {}) == 0
    accepted = frozenset(f"--{flag.name}" for flag in FLAGS)
    return accepted.union(_FLAG.findall(script + program.getvalue()))


@cache
def chart_values() -> Mapping[str, Any]:
    """The values of the chart, with those of its kube-vip."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    kube_vip: dict[str, Any] = yaml.safe_load((CHART / "charts" / "kube-vip" / "values.yaml").read_text())
    return {**values, "kube-vip": {**kube_vip, **values["kube-vip"]}}


def unknown_chart_values(text: str) -> list[str]:
    return [path for path in re.findall(r"--set(?:-string)? ['\"]?([\w.-]+)=", text) if not _has_value(path)]


def _has_value(path: str) -> bool:
    found: Any = chart_values()
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def command_lines(text: str) -> Iterator[str]:
    """Yield the commands of a page: in backticks, and the lines of its shell examples."""
    yield from words_in_code(text)
    for block in code_blocks(text, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.partition(" # ")[0]


def unknown_commands(text: str) -> list[str]:
    """Return commands that do not exist, and those with flags or arguments that they do not take."""
    wrong = []
    for line in command_lines(text):
        for start in re.finditer(r"(?:(?<=^)|(?<=[\s;&|(/]))(make|harvester-ccm|generate_addon\.sh) ", line):
            tail = re.split(r"\s[|>;&]|[)`]", line[start.end() :])[0]
            if not _is_command(start[1], tail):
                wrong.append(f"{start[1]} {tail}")
    modules = re.findall(r"python3? -m ((?:devenv|benchmarks|tests)[\w.]*)", text)
    wrong += [module for module in modules if not _module_exists(module)]
    return wrong


def _module_exists(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@cache
def targets() -> frozenset[str]:
    return frozenset(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _is_command(program: str, tail: str) -> bool:
    try:
        words = shlex.split(tail, comments=True)
    except ValueError:
        # A quoted text that spans lines: the first words are enough.
        words = tail.split()
    if program == "make":
        named = [word for word in words if "=" not in word and not word.startswith("-")]
        return not named or named[0] in targets()
    if program == "harvester-ccm":
        return _is_own_command(words)
    return {word for word in words if word.startswith("-")} <= {"-o", "-h", *known_flags()}


def _is_own_command(words: list[str]) -> bool:
    if not words or words[0].startswith("-") or words[0] in ("...", "…", "help"):
        return not parse_command_line(
            [word for word in words if word.startswith("--") and word != "--version"]
        ).problems
    if words[0] not in {command.name for command in COMMANDS}:
        return False
    spec = import_module(f"harvester_ccm.commands.{words[0]}").SPEC
    own = {flag.name for flag in spec.own}
    flags = (*(flag for flag in FLAGS if flag.name not in own), *spec.own)
    return not parse_command_line(words[1:], flags, takes_arguments=bool(spec.words)).problems


@cache
def known_keys() -> frozenset[str]:
    """Keys of annotations, labels, taints and finalizers."""
    values = {value for value in vars(names).values() if isinstance(value, str)}
    return frozenset(values | {f"{names.PREFIX}healthcheck-"})


def unknown_keys(text: str) -> list[str]:
    """Return keys with the prefix of the controller or of kube-vip that do not exist."""
    own = re.findall(re.escape(names.PREFIX) + r"[A-Za-z][A-Za-z-]*", text)
    kube_vip = re.findall(r"(?<![\w-])kube-vip\.io/[A-Za-z][A-Za-z-]*[A-Za-z]", text)
    others = {"kube-vip.io/loadbalancerHostname", "kube-vip.io/kube-vip-class"}
    return [key for key in (*own, *kube_vip) if key not in known_keys() and key not in others]


_PATH: Final = re.compile(
    r"(?:tests|devenv|benchmarks|scripts|deploy|docs|harvester_ccm|plan|controllers|kube|model|telemetry|commands)/[\w./-]+"
)


def missing_files(text: str) -> list[str]:
    """Return files and directories that a checkout does not have. Modules are also named from their package on."""
    named = [word for word in words_in_code(text) if _PATH.fullmatch(word)]
    return [path for path in named if not (ROOT / path).exists() and not (PRODUCT / path).exists()]


@cache
def known_metrics() -> frozenset[str]:
    return frozenset(metric.name for metric in described_metrics())


def unknown_metrics(text: str) -> list[str]:
    named = re.findall(r"\bharvester_ccm_[a-z_]+[a-z]\b", text)
    packages = {f"harvester_ccm_{name}" for name in ("dev",)}
    return [name for name in named if name not in known_metrics() and name not in packages]


CHECKS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "reasons": unknown_reasons,
    "chart values": unknown_chart_values,
    "commands": unknown_commands,
    "keys": unknown_keys,
    "metrics": unknown_metrics,
    "files": missing_files,
}
