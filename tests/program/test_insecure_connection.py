"""The log of a start, with connections that somebody on the network can read or change."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from devenv.pki import Authority
from devenv.process import ReservedPort

WARNING = "connection is not secure"
CLEAR_TEXT = "it is not encrypted (http://)"
NOT_VERIFIED = "the certificate of the server is not verified (insecure-skip-tls-verify)"


def kubeconfig(path: Path, cluster: dict[str, object]) -> Path:
    document = {
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": "a-token"}}],
        "contexts": [{"name": "main", "context": {"cluster": "one", "user": "me", "namespace": "vms"}}],
        "current-context": "main",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def log_of_a_start(harvester: Path, guest: Path) -> list[str]:
    """Start the program, whose servers refuse connections, and return its log until the first failed request."""
    command = [sys.executable, "-m", "harvester_ccm", f"--cloud-config={harvester}", f"--kubeconfig={guest}"]
    process = subprocess.Popen(
        [*command, "--secure-port=0", "--cluster-name=demo"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = []
    try:
        for line in process.stderr:
            lines.append(line)
            if " failed " in line:
                break
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return lines


@pytest.mark.security(
    "An unencrypted connection or `insecure-skip-tls-verify`, for either cluster, causes a warning at every start"
)
def test_insecure_connection_of_either_cluster_is_warned_about_at_every_start(tmp_path: Path) -> None:
    port = ReservedPort()
    port.release()
    address = f"127.0.0.1:{port.number}"
    authority = str(Authority("test", tmp_path / "pki").ca_file)
    clear_text = kubeconfig(tmp_path / "clear-text", {"server": f"http://{address}"})
    not_verified = kubeconfig(
        tmp_path / "not-verified", {"server": f"https://{address}", "insecure-skip-tls-verify": True}
    )
    verified = kubeconfig(tmp_path / "verified", {"server": f"https://{address}", "certificate-authority": authority})
    for harvester, guest, expected in (
        (clear_text, not_verified, [("harvester", CLEAR_TEXT), ("guest", NOT_VERIFIED)]),
        (not_verified, clear_text, [("harvester", NOT_VERIFIED), ("guest", CLEAR_TEXT)]),
        (verified, verified, []),
    ):
        warnings = [line for line in log_of_a_start(harvester, guest) if WARNING in line]
        assert len(warnings) == len(expected)
        for cluster, reason in expected:
            (line,) = [one for one in warnings if f"cluster={cluster} " in one]
            assert "[warning" in line
            assert f"reason='{reason}'" in line
            assert address in line
