"""The tests of each guarantee on the page about ownership and safety."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "ownership-and-safety.md"
GUARANTEES = {
    "A load balancer in use is never deleted.": (
        "tests/unit/plan/service/test_decision.py::test_plan",
        "tests/unit/controllers/test_service_turns.py::test_users_are_looked_for_once_more_after_the_withdrawal",
        "tests/unit/controllers/test_orphans.py::test_kept_while_another_service_shows_its_address",
        "tests/unit/plan/service/test_ownership.py::test_the_one_whose_address_is_in_use_serves_the_service",
        "tests/unit/commands/test_cleanup.py::test_load_balancer_that_changed_since_it_was_listed",
    ),
    "An announced address is never released.": (
        "tests/unit/plan/service/test_decision.py::test_plan",
        "tests/unit/controllers/test_service_turns.py::test_the_deletion_of_a_primary_waits_for_the_patch_of_a_secondary",
        "tests/unit/plan/service/test_decision_world.py::test_the_address_of_a_primary_that_was_a_secondary_is_not_shared",
    ),
    "A requested address stays until Harvester allocates one.": (
        "tests/program/test_addresses_not_booked.py::test_address_that_kube_vip_announced_before_us_survives_where_no_pool_fits",
        "tests/program/test_addresses_not_booked.py::test_address_that_harvester_gives_replaces_the_one_of_the_user",
        "tests/program/test_addresses_not_booked.py::test_address_that_kube_vip_announces_for_a_new_service_stays_until_harvester_gives_one",
        "tests/program/test_addresses_not_booked.py::test_services_that_share_such_an_address_keep_it_too",
    ),
    "An address is announced only in its network.": (
        "tests/unit/plan/service/test_network_device.py::test_an_address_is_not_announced_before_its_device_is_known",
        "tests/unit/plan/service/test_decision.py::test_plan",
    ),
    "Every address is announced, or an Event reports the reason.": (
        "tests/unit/controllers/test_service_endpoints.py::test_one_slice_with_endpoints_is_touched_once_for_each_change",
        "tests/unit/controllers/test_service_endpoints.py::test_a_touch_that_is_not_permitted_is_told_once_and_tried_again_at_each_resync",
    ),
    "No allocation is lost.": (
        "tests/unit/plan/service/test_decision.py::test_plan",
        "tests/program/test_schedules.py::test_a_booking_that_asking_again_would_have_shown_may_not_stay",
        "tests/e2e/test_refused_deletion.py::test_pool_gets_an_address_free",
        "tests/e2e/test_refused_deletion.py::test_another_pool_is_asked_for",
        "tests/unit/controllers/test_orphans.py::test_kept_until_harvester_has_booked_its_address",
        "tests/e2e/test_quick_deletion.py::test_services_that_harvester_has_not_looked_at_when_they_go",
        "tests/program/test_creation_gate.py::test_hundred_load_balancers_are_created_one_at_a_time_in_the_order_of_the_services",
    ),
    "Deleting a Service leaves nothing in Harvester.": (
        "tests/program/test_schedules.py::test_every_schedule_ends_in_what_is_asked_for",
        "tests/e2e/test_quick_deletion.py::test_services_that_live_for_moments",
        "tests/unit/controllers/test_orphans.py::test_load_balancer_created_after_its_service_was_deleted_is_deleted",
    ),
    "A Service cannot take the address of another Service.": (
        "tests/program/test_addresses_not_booked.py::test_a_service_that_waits_for_such_an_address_of_its_primary_is_told",
    ),
    "Only a 404 that names the object proves a deletion.": (
        "tests/unit/controllers/test_orphans.py::test_no_answer_but_not_found_means_gone",
        "tests/unit/controllers/test_orphans.py::test_nothing_is_deleted_while_a_cluster_cannot_be_read",
        "tests/unit/controllers/test_node_lifecycle.py::test_only_a_404_for_this_very_vm_means_gone",
        "tests/e2e/test_faults.py::test_pages_without_a_status_do_not_mean_that_a_service_is_gone",
    ),
    "Objects of other clusters and clones never change.": (
        "tests/program/test_copies.py::test_nothing_is_deleted_when_another_cluster_answers",
        "tests/program/test_copies.py::test_a_credential_for_another_cluster_ends_the_program",
        "tests/program/test_copies.py::test_two_clones_with_load_balancers_of_their_own_leave_each_other_alone",
        "tests/program/test_copies.py::test_a_restored_snapshot_beside_the_original_touches_nothing_of_it",
        "tests/program/test_copies.py::test_a_rewritten_label_or_mark_stops_the_writes",
    ),
    "No load balancer is created in a wrong Harvester.": (
        "tests/program/test_new_harvester.py::test_nothing_is_created_where_nothing_of_the_cluster_is_seen",
        "tests/program/test_new_harvester.py::test_an_address_that_another_cluster_has_in_the_wrong_harvester_is_kept",
    ),
    "No write is sent without the Lease.": (
        "tests/unit/kube/test_fence.py::test_no_change_is_sent_without_the_lease",
        "tests/unit/kube/test_fence.py::test_fence_is_shut_by_the_clock_before_the_loss_is_known",
        "tests/e2e/test_pause.py::test_leader_that_was_halted_writes_nothing_more",
    ),
    "Deletions without a finalizer are rate-limited.": (
        "tests/unit/controllers/test_orphans.py::test_many_are_deleted_with_a_pause_between_two_deletions",
        "tests/unit/controllers/test_node_lifecycle.py::test_scale_down_deletes_one_node_per_minute",
    ),
    "Writes are rate-limited.": (
        "tests/program/test_write_limits.py::test_writes_are_limited_and_one_event_is_emitted_in_a_conflict",
        "tests/program/test_write_limits.py::test_type_that_changes_continuously_is_followed_within_the_rate_limit",
        "tests/program/test_write_limits.py::test_nothing_but_periodic_lists_is_sent_when_nothing_changes",
        "tests/unit/controllers/test_service.py::test_a_hundred_served_services_are_silent_after_a_restart",
    ),
    "Fields of other controllers survive.": (
        "tests/unit/plan/service/test_writes.py::test_a_put_keeps_what_this_program_does_not_know",
        "tests/unit/controllers/test_service.py::test_a_finalizer_is_not_written_over_another_controllers",
        "tests/unit/controllers/test_service.py::test_another_service_of_the_name_is_not_written",
        "tests/apiserver/test_client.py::test_write_for_another_object_of_the_name_changes_nothing",
        "tests/apiserver/test_client.py::test_write_on_something_else_than_was_read_is_a_conflict",
    ),
    "A Service does not block other Services.": (
        "tests/unit/controllers/test_service_turns.py::test_one_of_two_secondaries_with_one_port_has_the_address_when_they_are_reconciled_at_once",
        "tests/unit/controllers/test_service_path.py::test_what_a_tenant_writes_costs_little_however_much_it_is",
        "tests/program/test_creation_gate.py::test_one_that_is_not_answered_for_holds_the_others_up_for_a_bounded_time",
        "tests/program/test_creation_gate.py::test_one_that_is_refused_or_cannot_be_created_holds_up_nobody",
    ),
    "No credential is logged.": (
        "tests/unit/test_logs.py::test_no_credential_gets_through",
        "tests/e2e/test_log_secrets.py::test_nothing_secret_is_shown_by_a_run_with_troubles",
    ),
    "The Node of an existing VM is never deleted.": (
        "tests/unit/plan/node/test_lifecycle.py::test_absence_is_a_404_that_names_the_vm",
        "tests/unit/plan/node/test_lifecycle.py::test_deletion_of_a_node_whose_vm_is_gone",
        "tests/unit/controllers/test_node_lifecycle.py::test_node_that_changed_meanwhile_is_not_deleted",
        "tests/unit/controllers/test_node_lifecycle.py::test_another_harvester_in_the_cloud_config_deletes_nothing",
    ),
    "A Node keeps an InternalIP that its VM reports,": (
        "tests/unit/plan/node/test_addresses.py::test_internal_ip_that_the_vm_reports_stays_without_a_flag_or_the_kubelet",
        "tests/unit/plan/node/test_addresses.py::test_addresses_of_one_interface",
        "tests/program/test_node_outage.py::test_an_hour_of_it",
    ),
    "Nodes of other providers and machines never change.": (
        "tests/program/test_node_strangers.py::test_whatever_happens_nothing_of_a_stranger_is_changed",
        "tests/program/test_node_strangers.py::test_wrong_namespace_full_of_namesakes_changes_nothing",
        "tests/unit/plan/service/test_backends.py::test_only_vms_of_nodes_that_are_known_get_traffic",
    ),
}
NAMED = sorted({test for tests in GUARANTEES.values() for test in tests})


@lru_cache
def functions_in(path: Path) -> frozenset[str]:
    """Return the names of the functions in a file."""
    return frozenset(re.findall(r"^(?:async )?def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_page_lists_the_guarantees() -> None:
    assert re.findall(r"^\d+\. \*\*(.+?)\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == [*GUARANTEES]
    assert all(GUARANTEES.values())


@pytest.mark.parametrize("test", NAMED)
def test_test_of_a_guarantee_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert name in functions_in(ROOT / path)
