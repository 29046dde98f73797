"""The control groups of the nodes' pods: the only objects outside of the capsule's namespaces.

Both versions are supported: one hierarchy for everything, or one for each controller.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from devenv.cluster.layout import CONTROL_GROUP, NODES

ROOT = Path("/sys/fs/cgroup")
REMOVAL_SECONDS = 20.0
_POLL_SECONDS = 0.1


def is_unified(root: Path = ROOT) -> bool:
    """Whether the machine has one hierarchy for everything (version 2)."""
    return (root / "cgroup.controllers").exists()


def hierarchies(root: Path = ROOT) -> list[Path]:
    """Return the root of each hierarchy. Next to those of version 1, there can be one of version 2."""
    if is_unified(root):
        return [root]
    return [directory for directory in sorted(root.iterdir()) if directory.is_dir() and not directory.is_symlink()]


@contextmanager
def control_groups(root: Path = ROOT) -> Iterator[None]:
    """Have a control group for each node during the block; groups of an earlier run are removed first.

    At the end, no process may be in them.
    """
    remove(root)
    try:
        for hierarchy in hierarchies(root):
            if is_unified(hierarchy) and hierarchy != root:
                # It has no controllers. runc creates the groups there that it needs.
                continue
            parent = hierarchy / CONTROL_GROUP
            for group in (parent, *(parent / node.short for node in NODES)):
                _create(group)
        yield
    finally:
        remove(root)


def _create(group: Path) -> None:
    group.mkdir()
    if is_unified(group):
        # The pods below can only have the controllers that each group above them passes on.
        available = (group / "cgroup.controllers").read_text().split()
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in available))
    elif (group / "cpuset.cpus").exists():
        # In version 1, a new group has no processor and no memory.
        for name in ("cpuset.cpus", "cpuset.mems"):
            (group / name).write_text((group.parent / name).read_text())
        (group / "cgroup.clone_children").write_text("1")


def remove(root: Path = ROOT) -> None:
    """Remove the groups. The kernel needs a moment until the group of an ended process is empty."""
    deadline = time.monotonic() + REMOVAL_SECONDS
    while left := _remove_once(root):
        if time.monotonic() > deadline:
            raise OSError(f"control groups have processes: {', '.join(str(group) for group in left)}")
        time.sleep(_POLL_SECONDS)


def _remove_once(root: Path) -> list[Path]:
    """Remove all empty groups, and return the topmost of those that are left."""
    tops = [hierarchy / CONTROL_GROUP for hierarchy in hierarchies(root)]
    for top in tops:
        groups = [directory for directory in top.rglob("*") if directory.is_dir()] if top.exists() else []
        for group in (*sorted(groups, reverse=True), top):
            with suppress(OSError):
                group.rmdir()
    return [top for top in tops if top.exists()]
