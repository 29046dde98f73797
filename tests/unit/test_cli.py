"""The command line as a whole: output, settings of the run, exit codes."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from harvester_ccm import __version__
from harvester_ccm.cli import main
from harvester_ccm.commands import COMMANDS, Command, Invocation
from harvester_ccm.config import Settings
from harvester_ccm.errors import ConfigurationError
from harvester_ccm.kube.errors import CredentialError, KubeError

NEEDED = ("--cloud-config=/etc/cloud-config", "--cluster-name=demo")
NAMES = ", ".join([*(command.name for command in COMMANDS), "help"])
CLOUD_CONFIG = "--cloud-config=/etc/kubernetes/cloud-config"
EXAMPLE = (
    "--management-network=default/vlan-100",
    "--node-ip-cidr=192.168.1.0/24",
    "--node-exclude-ip-ranges=192.168.1.1,192.168.1.254",
    "--disable-annotation-alpha-provided-ip-addr=true",
)
PUBLISHED: dict[str, tuple[str, ...]] = {
    "charts 0.1.200 to 0.2.1600 without a cluster name, RKE1 manifests, K3s HelmChart without values": (CLOUD_CONFIG,),
    "charts 0.1.800 to 0.2.1600 with a cluster name, RKE2": (CLOUD_CONFIG, "--cluster-name=atlas"),
    "Rancher: cluster with a display name": (CLOUD_CONFIG, "--cluster-name=My Cluster"),
    "charts 0.2.1200 to 0.2.1500, example 1 of extraArgs": (CLOUD_CONFIG, *EXAMPLE, "--show-full-help-on-error=true"),
    "chart 0.2.1600, example 1 of extraArgs": (
        *(CLOUD_CONFIG, "--cluster-name=atlas", *EXAMPLE),
        *("--disable-hostname-lookup=true", "--show-full-help-on-error=true"),
    ),
    "charts 0.2.1200 to 0.2.1600, example 2 of extraArgs": (
        CLOUD_CONFIG,
        "--controllers=cloud-node-controller,cloud-node-lifecycle-controller,node-route-controller",
    ),
    "charts 0.2.1200 to 0.2.1600, quotes in extraArgs": (CLOUD_CONFIG, '--cluster-name="my-cluster"'),
    "second cluster name in extraArgs": (CLOUD_CONFIG, "--cluster-name=atlas", "--cluster-name=other"),
    "Harvester documentation 1.9": (CLOUD_CONFIG, "--v=5", "--disable-vmi-controller=false", "--controllers=*"),
    "extraArgs in other forms": (CLOUD_CONFIG, "-v=5", "--v", "5", "", "--disable-vmi-controller"),
    "flags that the Go provider forces": (
        *(CLOUD_CONFIG, "--cloud-provider=harvester", "--allow-untagged-cloud=true"),
        "--authentication-skip-lookup=true",
    ),
    "flags of other cloud controller managers": (
        *(CLOUD_CONFIG, "--leader-elect=false", "--use-service-account-credentials", "--allocate-node-cidrs=false"),
        *("--configure-cloud-routes=false", "--node-status-update-frequency=1m0s", "--bind-address=127.0.0.1"),
        *("--concurrent-service-syncs=5", "--kube-api-qps=50", "--kube-api-burst=100", "--cluster-cidr=10.42.0.0/16"),
    ),
    "chart of this repository": (
        *(CLOUD_CONFIG, "--cluster-name=atlas", *EXAMPLE[:3], "--controllers=*,-service-lb-controller", "--v=2"),
        "--require-load-balancer-class",
    ),
}
"""Arguments of the container in published charts: 0.1.200 to 0.2.1600 of RKE2, which are 0.1.2 to 0.2.16 elsewhere."""
HINT = "harvester-ccm: hint: --help lists commands and flags\n"


class App(ModuleType):
    """Replaces the application: records the settings and returns or raises ``ending``."""

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
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    fake = App()
    monkeypatch.setitem(sys.modules, "harvester_ccm.app", fake)
    return fake


def call(*words: str, program: str = "harvester-ccm", environment: dict[str, str] | None = None) -> int:
    return main([program, *words], environment or {})


def log_lines(text: str) -> list[str]:
    return [line.partition(" ")[2] for line in text.splitlines()]


@pytest.mark.parametrize("code", [0, 1])
def test_run_gets_the_settings_and_returns_the_exit_code(
    app: App, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    app.ending = code
    assert call(*NEEDED, "-v=2", environment={"KUBECONFIG": "/guest"}) == code
    (settings,) = app.seen
    assert (settings.harvester.cluster_name, settings.guest.kubeconfigs) == ("demo", (Path("/guest"),))
    output = capsys.readouterr()
    assert output.out == ""
    assert log_lines(output.err) == [
        "[info     ] flags read given={'cloud-config': '/etc/cloud-config', 'cluster-name': 'demo', 'v': '2'}"
    ]


@pytest.mark.parametrize("words", PUBLISHED.values(), ids=PUBLISHED)
def test_published_command_lines_start_the_controllers(app: App, words: tuple[str, ...]) -> None:
    assert main(["/usr/bin/harvester-cloud-provider", *words], {}) == 0
    assert app.seen[0].harvester.cloud_config == Path("/etc/kubernetes/cloud-config")


def test_warnings_and_flags_without_effect_are_logged_once(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--cloud-config=/c", "--cluster-name=lab.example", "--profiling=false") == 0
    assert len(app.seen) == 1
    first, second, third = log_lines(capsys.readouterr().err)
    assert first.startswith("[info     ] flags read ")
    assert second.startswith("[warning  ] questionable setting detail=\"--cluster-name is 'lab.example'")
    assert third == (
        "[warning  ] flag without effect detail='--profiling has no effect: harvester-ccm is not written in Go and has "
        "no pprof endpoints'"
    )


def test_arguments_and_environment_of_the_process_are_used(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/harvester-cloud-provider", *NEEDED])
    monkeypatch.setitem(os.environ, "KUBECONFIG", "/from/environment")
    assert main() == 0
    assert app.seen[0].guest.kubeconfigs == (Path("/from/environment"),)


@pytest.mark.parametrize("word", ["--version", "--version=raw", "version"])
def test_version(app: App, capsys: pytest.CaptureFixture[str], word: str) -> None:
    assert call(word) == 0
    assert capsys.readouterr() == (f"harvester-ccm {__version__}\n", "")
    assert app.seen == []


def test_version_as_json(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("version", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out) == {"version": __version__}


def test_every_entry_of_the_help_has_a_help(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    for entry in (*NAMES.split(", "), "cleanup node"):
        assert call("help", *entry.split()) == 0
        name = "" if entry == "help" else entry.split()[0]
        assert capsys.readouterr().out.startswith(f"usage: harvester-ccm {name}")
    assert call("describe", "--help") == 0
    assert capsys.readouterr().out.startswith("usage: harvester-ccm explain ")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--help",), marks=pytest.mark.thorough),
        pytest.param(("explain", "--help"), marks=pytest.mark.thorough),
        ("completion", "bash"),
    ],
    ids=" ".join,
)
def test_closed_output_pipe(words: tuple[str, ...]) -> None:
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
@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help(app: App, capsys: pytest.CaptureFixture[str], program: str, name: str, word: str) -> None:
    assert call(word, "--version", program=program) == 0
    output = capsys.readouterr()
    assert output.out.startswith(f"usage: {name} [command] [flags]\n")
    assert "\n  explain               Show the state of a Service or a Node" in output.out
    assert (output.err, app.seen) == ("", [])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["--cluster-nam=x", "--nope", "--v=x", *NEEDED],
            [
                "unknown flag --cluster-nam; did you mean --cluster-name?",
                "unknown flag --nope",
                "--v is 'x'; expected a whole number",
            ],
        ),
        (
            [*NEEDED, "explain", "shop/web"],
            ["unexpected arguments 'explain' 'shop/web'; commands come first, and bool flags are written --flag=value"],
        ),
        ([], ["--cloud-config is required: the kubeconfig file of the Harvester cluster"]),
    ],
)
def test_errors_in_flags(app: App, capsys: pytest.CaptureFixture[str], words: list[str], expected: list[str]) -> None:
    assert call(*words) == 1
    lines = "".join(f"harvester-ccm: error: {line}\n" for line in expected)
    assert capsys.readouterr() == ("", f"{lines}{HINT}")
    assert app.seen == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["preflght", *NEEDED], "unknown command 'preflght'; did you mean preflight?"),
        (["xyz"], f"unknown command 'xyz'; expected one of: {NAMES}"),
    ],
)
def test_command_that_does_not_exist_is_a_usage_error(
    app: App, capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    assert call(*words) == 2
    assert capsys.readouterr() == ("", f"harvester-ccm: error: {expected}\n{HINT}")
    assert app.seen == []


@pytest.mark.parametrize("word", ["v=4", "--nope"])
def test_hint_in_a_container_is_about_the_chart(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert call(word, *NEEDED) != 0
    assert capsys.readouterr().err.endswith(
        "hint: flags in .Values.extraArgs of the Helm chart are written --name=value\n"
    )


def test_full_help_after_errors(app: App, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--nope", "--show-full-help-on-error", *NEEDED, program="harvester-cloud-provider") == 1
    assert f"error: unknown flag --nope\n{HINT}\nusage: harvester-cloud-provider " in capsys.readouterr().err


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
        pytest.param(KubeError("port 10258 is in use"), 1, ["harvester-ccm: error: port 10258 is in use"], id="other"),
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
    assert lines[1].endswith("[error    ] unexpected error")
    assert lines[-1] == "  KeyError: 'Bearer [removed]'"


def test_commands_get_the_rest_of_the_words(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, Invocation]] = []

    def run(command: Command, invocation: Invocation) -> int:
        calls.append((command.name, invocation))
        return 7

    monkeypatch.setattr(Command, "run", run)
    assert main(["harvester-cloud-provider", "explain", "default/web", "--v=4"], {"A": "b"}) == 7
    assert calls == [("explain", Invocation("harvester-cloud-provider", ("default/web", "--v=4"), {"A": "b"}))]
    assert app.seen == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "libraries"),
    [
        ("from harvester_ccm.cli import main; main(['x', '--version'], {})", {"aiohttp"}),
        ("import harvester_ccm.app, harvester_ccm.telemetry.server", {"cryptography", "shtab"}),
    ],
    ids=["version", "controllers"],
)
def test_libraries_are_loaded_only_where_they_are_needed(code: str, libraries: set[str]) -> None:
    code = f"{code}; import sys; print({libraries} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "set()"
