"""Rejections of the webhook that its mutator prevents, unless it is skipped."""

import pytest

from devenv.harvester.admission import Refusal, Surroundings, validate_create, validate_update
from devenv.harvester.versions import V1_9
from tests.devenv.emulated import balancer, vm_balancer

CHECK = {"port": 30080, "successThreshold": 1, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1}


@pytest.mark.parametrize(
    ("field", "name"), [("successThreshold", "SuccessThreshold"), ("timeoutSeconds", "TimeoutSeconds")]
)
def test_health_check_without_the_defaults_of_the_mutator(field: str, name: str) -> None:
    check = {**CHECK, field: 0}
    document = vm_balancer("web", healthCheck=check)
    text = f"failed with healthyCheck: healthcheck {name} should > 0"
    with pytest.raises(Refusal, match=f"create loadbalancer default/web {text}"):
        validate_create(document, Surroundings(), V1_9)
    with pytest.raises(Refusal, match=f"update loadbalancer default/web {text}"):
        validate_update(document, vm_balancer("web"), Surroundings(), V1_9)
    validate_create(balancer("web", healthCheck=check), Surroundings(), V1_9)
