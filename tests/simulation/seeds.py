"""Seeds of schedules that have not run yet: each commit has its own."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DIGITS: Final = 8
"""Digits of the commit's hash that make its first seed, so that the seeds of two commits hardly ever overlap."""


def first_unseen() -> int:
    """Return the first seed of the commit that is checked out; 0 outside of a repository."""
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    commit = answer.stdout.strip()
    return int(commit[:DIGITS], 16) if commit else 0
