"""A kubeconfig that cannot be read any more, or whose new contents cannot be used, while the program runs."""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from harvester_ccm.controllers import self_report
from harvester_ccm.kube import reload
from harvester_ccm.kube.credentials import load_credentials
from harvester_ccm.kube.reload import CredentialReloader
from tests.support.memory_server import MemoryClient
from tests.support.program_world import Harvester, Program, guest_server
from tests.support.waiting import wait_for

ENDED = "cloud-controller-manager: CredentialReloaded"
REASON = "cloud-controller-manager: CredentialNotReloaded"


def kubeconfig(token: str) -> str:
    document = {
        "clusters": [{"name": "one", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
        "current-context": "main",
    }
    return yaml.safe_dump(document)


def is_ready(program: Program, check: str) -> bool:
    """Return whether a check of readiness passes, as a scrape shows it."""
    body, _ = program.telemetry.exposition("text/plain")
    samples = [one for family in text_string_to_metric_families(body.decode()) for one in family.samples]
    labels = {"name": check, "type": "readyz"}
    # None before the program has started.
    return [one.value for one in samples if one.name == "kubernetes_healthcheck" and one.labels == labels] == [1]


@pytest.mark.security("A kubeconfig that cannot be read any more, or cannot be used after a change, is reported")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(Path.unlink, "No such file", id="deleted"),
        pytest.param(lambda file: file.write_text("clusters: ["), "not valid YAML", id="truncated"),
        pytest.param(lambda file: file.write_text("x: !!timestamp x"), "not valid YAML", id="no timestamp"),
        pytest.param(lambda file: file.write_text(kubeconfig("two words")), "ASCII characters", id="no token"),
    ],
)
@pytest.mark.security("the previous credential stays in use")
async def test_unusable_kubeconfig_is_reported_until_it_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], object], reason: str
) -> None:
    monkeypatch.setattr(reload, "INTERVAL", 0.05)
    file = tmp_path / "kubeconfig"
    file.write_text(kubeconfig("first"))
    program = Program(guest_server(), Harvester(), "prod")
    await program.client.use(load_credentials(file))
    program.reloaders.append(CredentialReloader(program.client, partial(load_credentials, file)))
    async with program.live():
        await wait_for(partial(is_ready, program, "caches-synced"))
        assert is_ready(program, "guest-credential-file")
        assert program.reasons() == []
        damage(file)
        await wait_for(lambda: not is_ready(program, "guest-credential-file"))
        await wait_for(lambda: program.reasons() == [REASON])
        (message,) = program.warnings("cloud-controller-manager")
        assert str(file) in message
        assert reason in message
        # The credential in use still works.
        assert is_ready(program, "guest-credential")
        file.write_text(kubeconfig("second"))
        await wait_for(partial(is_ready, program, "guest-credential-file"))
        assert program.client.credentials.token.get() == "second"
        await wait_for(lambda: ENDED in program.reasons("Normal"))
        assert program.reasons() == [REASON]
    assert program.exit_code is None


async def test_report_about_two_kubeconfigs_is_repeated_and_ends_with_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reload, "INTERVAL", 0.05)
    monkeypatch.setattr(self_report, "REPORT_SECONDS", 0.2)
    program = Program(guest_server(), Harvester(), "prod")
    for cluster in ("guest", "harvester"):
        client = MemoryClient(program.guest, cluster=cluster)
        reloader = CredentialReloader(client, partial(load_credentials, Path("/none")))
        reloader.check = partial(damaged, reloader)  # type: ignore[method-assign]
        program.reloaders.append(reloader)
    text = "The kubeconfig for guest cannot be loaded: it is gone. The kubeconfig for harvester cannot"
    async with program.live():
        # The first check finds one file, the second one both, and that is repeated.
        await wait_for(lambda: len(program.reasons()) > 2)
        assert set(program.reasons()) == {REASON}
        assert all(text in message for message in program.warnings("cloud-controller-manager")[1:])
        assert ENDED not in program.reasons("Normal")
        os.kill(os.getpid(), signal.SIGINT)
        await wait_for(lambda: program.exit_code == 0)
    assert program.reasons("Normal").count(ENDED) == 1


async def damaged(reloader: CredentialReloader) -> None:
    """Find a file that does not exist any more."""
    reloader.problem = "it is gone"
