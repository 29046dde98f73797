"""What this process tells of itself: metrics, health, and the HTTPS server for both."""

from harvester_ccm.telemetry.health import Aspect, HealthRegistry, Result
from harvester_ccm.telemetry.metrics import Samples, Telemetry
from harvester_ccm.telemetry.page import metrics_page
from harvester_ccm.telemetry.queues import Queue

__all__ = ["Aspect", "HealthRegistry", "Queue", "Result", "Samples", "Telemetry", "metrics_page"]
