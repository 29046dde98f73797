"""``python -m harvester_ccm``: the same as the command ``harvester-ccm``."""

import sys

from harvester_ccm.cli import main

sys.exit(main())
