"""Plays Harvester's controllers on a cluster that has its resource definitions: for ``scripts/e2e_kind.sh``.

``python scripts/kind_harvester.py KUBECONFIG CIDR`` needs an administrator's kubeconfig, makes the pool ``kind`` with
the addresses of CIDR, prints ``ready`` and works until SIGTERM. The admission webhook is left out: the API server of
the cluster could not reach it.
"""

import asyncio
import signal
import sys
from pathlib import Path

from devenv.harvester.emulator import HarvesterEmulator
from harvester_ccm.kube.client import ApiClient
from harvester_ccm.kube.credentials import load_credentials


async def play(kubeconfig: Path, cidr: str) -> None:
    """Serve load balancers with addresses of ``cidr`` until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with (
        ApiClient(load_credentials(kubeconfig), cluster="harvester-admin") as client,
        HarvesterEmulator(client, webhook=False) as harvester,
    ):
        await harvester.create_pool("kind", cidr)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python scripts/kind_harvester.py KUBECONFIG CIDR")
    asyncio.run(play(Path(sys.argv[1]), sys.argv[2]))
