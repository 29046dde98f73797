"""What all runners of actions have in common."""

from tests.simulation.guest import Guest
from tests.simulation.world import World


class Actor:
    """Acts in a world as users of one of its guest clusters do."""

    def __init__(self, world: World, guest: Guest | None = None) -> None:
        """``guest`` is the cluster whose users act; without one, the original."""
        self._world = world
        self._guest = guest or world.original
