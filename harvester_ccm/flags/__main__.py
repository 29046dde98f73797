"""Prints the reference page of all flags: ``python -m harvester_ccm.flags > docs/reference/flags.md``."""

from __future__ import annotations

import sys

from harvester_ccm.flags.help import flags_page

sys.stdout.write(flags_page())
