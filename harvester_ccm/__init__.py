"""Cloud controller manager for Kubernetes clusters whose nodes are Harvester virtual machines."""

import sys

__version__ = "0.1.0"


def _import_structlog_alone() -> None:
    """Import structlog as if rich were not installed.

    structlog takes rich for tracebacks when it is there, with the values of variables in them. Only the commands that
    paint need it; the running program would carry it for nothing, and must not show what variables hold.
    """
    if "rich" in sys.modules:
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        import structlog  # noqa: F401, PLC0415
    finally:
        del sys.modules["rich"]


_import_structlog_alone()
