"""What this process measures and checks of itself: metrics and health. Knows nothing of the rest of the program."""

from harvester_ccm.telemetry.health import Aspect, HealthRegistry, Result
from harvester_ccm.telemetry.metrics import Samples, Telemetry
from harvester_ccm.telemetry.page import metrics_page
from harvester_ccm.telemetry.queues import Queue

__all__ = ["Aspect", "HealthRegistry", "Queue", "Result", "Samples", "Telemetry", "metrics_page"]
