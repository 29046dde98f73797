"""The scene kept running for work by hand: what to paste at another terminal, and faults to find the cause of."""

from __future__ import annotations

import asyncio
import os
import select
from typing import Final

from devenv.demo.faults import FAULTS, Faults
from devenv.demo.household import PORTAL, PORTAL_PORT, WEB, WEB_PORT, Household
from devenv.demo.play import Disappointment, Play
from devenv.demo.toolbox import HARVESTER, write_toolbox
from devenv.guestnodes import GuestNodes, name_of

WATCH_SECONDS: Final = 0.5
MENDED: Final = "none"
"""What is typed to have a fault mended."""

_HELP: Final = """
At another terminal, first:

  . {env}

That shell has the kubectl and the harvester-ccm of this scene. For example:

  harvester-ccm status
  harvester-ccm explain svc/{web}
  harvester-ccm explain node/{node}
  kubectl get nodes,services
  kubectl --context={harvester} get loadbalancers,ippools,virtualmachines
  curl http://{web_address}:{web_port}/       # {web}: kube-vip announces it
  curl http://{portal_address}:{portal_port}/        # {portal}: Harvester balances over the nodes
  kubectl create service loadbalancer mine --tcp=18080
  kubectl events --for service/mine

Addresses come from {pool}, or from {dhcp} with the annotation
cloudprovider.harvesterhci.io/ipam=dhcp. They are loopback addresses of this machine.
Log of the program: {log}

Faults to find the cause of: type one of these words here, and harvester-ccm status there.

{faults}

Ctrl-C ends all of it and removes the files.
"""


async def keep(play: Play, *, pool: str, dhcp: str, fault: str | None = None) -> int:
    """Make the scene look lived in, tell how to use it, break what is asked for, until Ctrl-C.

    ``pool`` and ``dhcp`` are where addresses come from, for people; ``fault`` is what is broken from the beginning.
    Raises Disappointment when the program ends.
    """
    voice, stage = play.voice, play.stage
    voice.headline("Three nodes and two Services move in")
    async with GuestNodes(stage.guest, stage.host) as backends:
        household = Household(play, backends)
        await household.move_in()
        voice.headline("Ready for work by hand")
        voice.show((await _help(play, pool, dhcp)).splitlines())
        faults, typed = Faults(play, household), Typed()
        words = [fault] if fault else []
        while play.run.exit_code is None:
            for word in [*words, *typed.words()]:
                await _follow(play, faults, word)
            words = []
            await household.answer()
            await asyncio.sleep(WATCH_SECONDS)
    raise Disappointment(f"harvester-ccm ended with exit code {play.run.exit_code}; see {play.run.log_file}")


async def _help(play: Play, pool: str, dhcp: str) -> str:
    web, portal = await play.stage.served(WEB, PORTAL)
    return _HELP.format(
        env=write_toolbox(play.stage.scene, play.stage.directory),
        web=WEB,
        web_address=web.addresses[0],
        web_port=WEB_PORT,
        portal=PORTAL,
        portal_address=portal.addresses[0],
        portal_port=PORTAL_PORT,
        node=name_of(1),
        harvester=HARVESTER,
        pool=pool,
        dhcp=dhcp,
        log=play.run.log_file,
        faults=_listed_faults(),
    )


def _listed_faults() -> str:
    rows = [*((name, one.meaning) for name, one in FAULTS.items()), (MENDED, "mend what is broken")]
    return "\n".join(f"  {name:15}{meaning}" for name, meaning in rows)


async def _follow(play: Play, faults: Faults, word: str) -> None:
    """Do what a word that was typed means."""
    voice = play.voice
    if word == MENDED:
        await faults.mend()
        voice.headline("Mended")
    elif word in FAULTS:
        voice.headline(f"Breaking something: {word}")
        suffering = await faults.cause(word)
        voice.say("Done. What is wrong?")
        voice.show(["", "  harvester-ccm status", f"  harvester-ccm explain {suffering}"])
    else:
        voice.headline(f"{word!r} is no fault; expected one of: {', '.join((*FAULTS, MENDED))}")


class Typed:
    """Words that somebody types at this process's terminal, or that come through a pipe; looked at without waiting."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._ended = False

    def words(self) -> list[str]:
        """Return the words of all whole lines that came since the last look."""
        while not self._ended and self._is_ready():
            try:
                data = os.read(self._descriptor, 4096)
            except OSError:
                data = b""
            self._ended, self._rest = not data, self._rest + data
        *lines, self._rest = self._rest.split(b"\n")
        return b" ".join(lines).decode(errors="replace").split()

    def _is_ready(self) -> bool:
        try:
            # A process in the background that reads from its terminal is stopped.
            if os.isatty(self._descriptor) and os.tcgetpgrp(self._descriptor) != os.getpgrp():
                return False
            return bool(select.select([self._descriptor], [], [], 0)[0])
        except (OSError, ValueError):
            self._ended = True
            return False
