"""The command line as a whole: what is printed where, what runs, and the exit codes."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import structlog

from harvester_ccm import __version__, cli
from harvester_ccm.cli import main
from harvester_ccm.commands import COMMANDS, HELP, VERSION, Command, Invocation
from harvester_ccm.config import Settings
from harvester_ccm.errors import CCMError, ConfigurationError, CredentialError
from harvester_ccm.flags import help_text
from harvester_ccm.logs import configure_logging

NEEDED = ("--cloud-config=/etc/cloud-config", "--cluster-name=demo")
LISTED = [*((command.name, command.summary) for command in COMMANDS), HELP, VERSION]
HINT = "harvester-ccm: hint: check .Values.extraArgs of the Helm chart: flags are written --name=value\n"


class App(ModuleType):
    """Stands in for the application: records the settings and ends as told."""

    def __init__(self) -> None:
        super().__init__("harvester_ccm.app")
        self.seen: list[Settings] = []
        self.ending: int | Exception = 0

    def run(self, settings: Settings, environment: Mapping[str, str]) -> int:
        self.seen.append(settings)
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The application replaced, and all that logging sets globally put back."""
    fake = App()
    monkeypatch.setitem(sys.modules, "harvester_ccm.app", fake)
    monkeypatch.setattr(cli, "configure_logging", partial(configure_logging, cache=False))
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield fake
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def call(*words: str, program: str = "harvester-ccm", environment: dict[str, str] | None = None) -> int:
    return main([program, *words], environment or {})


def log_lines(text: str) -> list[str]:
    return [line.partition(" ")[2] for line in text.splitlines()]


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_gets_its_settings_and_gives_the_exit_code(
    app: App, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    app.ending = code
    assert call(*NEEDED, "-v=2", environment={"KUBECONFIG": "/guest"}) == code
    (settings,) = app.seen
    assert (settings.harvester.cluster_name, settings.guest.kubeconfigs) == ("demo", (Path("/guest"),))
    output = capsys.readouterr()
    assert output.out == ""
    assert log_lines(output.err) == [
        'INFO  flags read given={"cloud-config": "/etc/cloud-config", "cluster-name": "demo", "v": 2}'
    ]


def test_warnings_and_flags_without_effect_are_logged_once(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--cloud-config=/c", "--cluster-name=lab.example", "--profiling=false") == 0
    assert len(app.seen) == 1
    first, second, third = log_lines(capsys.readouterr().err)
    assert first.startswith("INFO  flags read ")
    assert second.startswith('WARN  setting works badly detail="--cluster-name \\"lab.example\\" is not a DNS label')
    assert third == (
        'WARN  flag without effect detail="--profiling has no effect here: the program is not written in Go and '
        'serves no pprof pages"'
    )


def test_arguments_and_environment_of_the_process_are_used(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/harvester-cloud-provider", *NEEDED])
    monkeypatch.setitem(os.environ, "KUBECONFIG", "/from/environment")
    assert main() == 0
    assert app.seen[0].guest.kubeconfigs == (Path("/from/environment"),)


@pytest.mark.parametrize("word", ["--version", "--version=raw"])
def test_version(app: App, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert call(word) == 0
    assert capsys.readouterr() == (f"harvester-ccm {__version__}\n", "")
    assert app.seen == []


@pytest.mark.parametrize(("words", "same"), [(("version",), ("--version",)), (("help",), ("--help",))])
def test_words_for_help_and_version(
    app: App, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], same: tuple[str, ...]
) -> None:
    assert (call(*words), call(*same)) == (0, 0)
    text = capsys.readouterr().out
    assert text[: len(text) // 2] == text[len(text) // 2 :]
    assert app.seen == []


@pytest.mark.parametrize("more", [(), ("node",)])
def test_help_of_a_command(app: App, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]) -> None:
    assert call("help", "cleanup", *more) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Usage:\n  harvester-ccm cleanup ")
    assert "\nExamples:\n  # " in shown
    assert "\nFlags of this command:\n  --cluster=string\n" in shown


def test_help_of_a_command_without_flags_of_its_own(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("help", "completion") == 0
    assert "Flags of this command" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--help",), marks=pytest.mark.thorough),
        pytest.param(("explain", "--help"), marks=pytest.mark.thorough),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_nobody_reads_the_output(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    order = [sys.executable, "-m", "harvester_ccm", *words]
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(order, check=False, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("/usr/bin/kubectl-harvester_ccm", "kubectl harvester-ccm"),
        ("/usr/bin/harvester-ccm", "harvester-ccm"),
        ("/usr/bin/harvester-cloud-provider", "harvester-cloud-provider"),
        ("/app/__main__.py", "harvester-ccm"),
    ],
)
@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help(
    app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: str, name: str, word: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call(word, "--version", program=program) == 0
    assert capsys.readouterr() == (help_text(program=name, width=80, commands=LISTED), "")
    assert app.seen == []


@pytest.mark.parametrize(("columns", "width"), [("20", 40), ("300", 120)])
def test_help_fits_odd_terminals(
    app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert call("--help") == 0
    assert capsys.readouterr().out == help_text(program="harvester-ccm", width=width, commands=LISTED)
    assert app.seen == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(
            ["--cluster-nam=x", "--v=x", *NEEDED],
            "harvester-ccm: error: unknown flag: --cluster-nam; did you mean --cluster-name?\n"
            'harvester-ccm: error: invalid argument "x" for "-v, --v" flag: strconv.ParseUint: parsing "x": invalid '
            f"syntax\n{HINT}",
            id="unknown flag",
        ),
        pytest.param(
            [*NEEDED, "--master"],
            "harvester-ccm: error: flag needs an argument: --master\n",
            id="no hint without unknown flag",
        ),
        pytest.param(
            ["preflght", *NEEDED],
            'harvester-ccm: error: unknown command "preflght"; did you mean preflight? Commands: '
            f"{', '.join(name for name, _ in LISTED)}\n",
            id="a command that does not exist",
        ),
        pytest.param(
            ["zzz"],
            f'harvester-ccm: error: unknown command "zzz". Commands: {", ".join(name for name, _ in LISTED)}\n',
            id="a command that is like none",
        ),
        pytest.param(
            [*NEEDED, "explain", "shop/web"],
            'harvester-ccm: error: "cloud-controller-manager" does not take any arguments, got ["explain" "shop/web"]\n'
            "harvester-ccm: hint: the command comes first: harvester-ccm explain --name=value\n",
            id="a command behind flags",
        ),
        pytest.param(
            [],
            "harvester-ccm: error: --cloud-config is required: name the kubeconfig file of the Harvester cluster\n"
            "harvester-ccm: hint: harvester-ccm --help lists the commands and flags\n",
            id="nothing",
        ),
        pytest.param(
            ["--secure-port=-1"],
            "harvester-ccm: error: --cloud-config is required: name the kubeconfig file of the Harvester cluster\n"
            "harvester-ccm: error: --secure-port is -1; expected a port up to 65535, or 0 for no server\n",
            id="settings",
        ),
        pytest.param(
            ["--secure-port=-1", "--nope", "--logging-format=xml", *NEEDED],
            "harvester-ccm: error: unknown flag: --nope\n"
            "harvester-ccm: error: --secure-port is -1; expected a port up to 65535, or 0 for no server\n"
            'harvester-ccm: error: --logging-format is "xml"; expected one of: text, json\n'
            f"{HINT}",
            id="command line and settings",
        ),
        pytest.param(
            ["--show-full-help-on-error=false", "---", *NEEDED],
            f"harvester-ccm: error: bad flag syntax: ---\n{HINT}",
            id="bad syntax",
        ),
    ],
)
def test_refusals(app: App, capsys: pytest.CaptureFixture[str], words: list[str], expected: str) -> None:
    assert call(*words) == 1
    assert capsys.readouterr() == ("", expected)
    assert app.seen == []


def test_full_help_after_errors(app: App, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert call("--nope", "--show-full-help-on-error", *NEEDED, program="harvester-cloud-provider") == 1
    shown = help_text(program="harvester-cloud-provider", width=80, commands=LISTED)
    assert capsys.readouterr() == ("", f"harvester-ccm: error: unknown flag: --nope\n{HINT}\n{shown}")
    assert app.seen == []


@pytest.mark.parametrize(
    ("ending", "code", "expected"),
    [
        pytest.param(
            CredentialError("/etc/cloud-config: the file does not exist"),
            255,
            ["harvester-ccm: error: cannot use --cloud-config: /etc/cloud-config: the file does not exist"],
            id="cloud-config",
        ),
        pytest.param(
            ConfigurationError(["guest cluster: no token", "and\nmore"]),
            1,
            ["harvester-ccm: error: guest cluster: no token", "harvester-ccm: error: and more"],
            id="configuration",
        ),
        pytest.param(CCMError("port 10258 is in use"), 1, ["harvester-ccm: error: port 10258 is in use"], id="other"),
    ],
)
def test_a_run_that_cannot_start(
    app: App, capsys: pytest.CaptureFixture[str], ending: Exception, code: int, expected: list[str]
) -> None:
    app.ending = ending
    assert call(*NEEDED) == code
    assert capsys.readouterr().err.splitlines()[1:] == expected


def test_an_unexpected_error_is_logged_without_credentials(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    app.ending = KeyError("Bearer abcdef")
    assert call(*NEEDED) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[1].endswith("ERROR stopped by an unexpected error")
    assert lines[-1] == "  KeyError: 'Bearer [removed]'"


class Recorder:
    """A command that keeps how it was called."""

    def __init__(self, ending: int | Exception) -> None:
        self.calls: list[Invocation] = []
        self.ending = ending

    def __call__(self, invocation: Invocation) -> int:
        self.calls.append(invocation)
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending


@pytest.mark.parametrize(
    ("ending", "code"), [(7, 7), (CredentialError("x"), 255), (ConfigurationError(["x"]), 1), (CCMError("x"), 1)]
)
def test_commands_get_the_rest_of_the_words(
    app: App, monkeypatch: pytest.MonkeyPatch, ending: int | Exception, code: int
) -> None:
    record = Recorder(ending)
    monkeypatch.setattr("harvester_ccm.cli.COMMANDS", (Command("explain", "Say why.", record),))
    argv = ["harvester-cloud-provider", "explain", "default/web", "--v=4"]
    assert main(argv, {"A": "b"}) == code
    assert record.calls == [Invocation("harvester-cloud-provider", ("default/web", "--v=4"), {"A": "b"})]
    assert app.seen == []


def test_flags_without_a_command_run_the_program(app: App) -> None:
    assert main(["harvester-ccm", *NEEDED], {}) == 0
    assert len(app.seen) == 1


def test_help_lists_the_commands(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["harvester-ccm", "--help"], {}) == 0
    output = capsys.readouterr().out
    assert output.startswith("Usage: harvester-ccm [command] [flags]\n")
    assert "\n  explain\n        Say what a Service or a Node is" in output
    assert app.seen == []


@pytest.mark.thorough
def test_the_http_client_is_not_loaded_for_help() -> None:
    code = (
        "import sys; from harvester_ccm.cli import main; main(['x', '--version'], {}); print('aiohttp' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"harvester-ccm {__version__}\nFalse\n"


@pytest.mark.thorough
def test_the_controller_loads_nothing_that_only_others_need() -> None:
    """Neither what completes command lines, nor what the process that makes a certificate uses."""
    code = (
        "import sys, harvester_ccm.app, harvester_ccm.telemetry.server;"
        "print(sorted({'argparse', 'cryptography', 'shtab'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"
