"""The emulated Harvester as a process: ``python -m devenv.cluster.emulated KUBECONFIG``.

KUBECONFIG is an administrator's of Harvester's API server, which runs in the same network namespace. Prints ``ready``
and works until SIGTERM.
"""

import asyncio
import signal
import sys
from pathlib import Path

from devenv.harvester.emulator import HarvesterEmulator
from devenv.stage import HOST_DHCP_RANGE
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials


async def play(kubeconfig: Path) -> None:
    """Be Harvester's controllers and webhook until SIGTERM."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with (
        ApiClient(load_credentials(kubeconfig), cluster="harvester-admin") as client,
        HarvesterEmulator(client, dhcp_range=HOST_DHCP_RANGE),
    ):
        print("ready", flush=True)
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(play(Path(sys.argv[1])))
