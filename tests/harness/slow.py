"""The slow tests, which `make quick` omits, by prefixes of their names.

They are few but take most of the time. `make test` runs them, and prints the slowest 20 tests. A
new one among those that needs neither Kafka nor Java may belong in this list.
"""

SLOW = tuple(
    f"tests/{name}"
    for name in (
        "behavior/consumer/test_brokers.py",
        "behavior/groups/test_churn.py",
        "behavior/groups/test_member_limits.py",
        "behavior/groups/test_mixed.py",
        "behavior/groups/test_rewind.py",
        "behavior/testing/test_embedded_running.py::TestPytest",
        "behavior/testing/test_embedded_running.py::TestSimulation",
        "examples/",
        "faults/proxy/test_bad_connections.py",
        "faults/simulation/test_busy_coordinators.py",
        "faults/simulation/test_cancellation.py",
        "faults/simulation/test_consumer_churn.py",
        "faults/simulation/test_consumer_group_cancellation.py",
        "faults/simulation/test_consumer_group_faults.py",
        "faults/simulation/test_group_cancellation.py",
        "faults/simulation/test_group_churn.py",
        "faults/simulation/test_kip848.py",
        "faults/simulation/test_producing.py::test_a_reset_at_each_byte",
        "faults/simulation/test_reading_amid_changes.py",
        "faults/simulation/test_rewinds.py",
        "faults/simulation/test_seeds.py",
        "test_changes.py",
        "test_typing.py",
        "unit/cluster/test_bad_brokers.py",
        "unit/cluster/test_dropped.py",
        "unit/cluster/test_huge_metadata.py",
        "unit/cluster/test_kept_errors.py",
        "unit/cluster/test_large.py",
        "unit/cluster/test_loop_end.py",
        "unit/cluster/test_opening.py",
        "unit/consumer/assignors/test_confluent.py",
        "unit/consumer/assignors/test_every.py",
        "unit/consumer/assignors/test_sticky.py",
        "unit/consumer/membership/test_two_hundred_members.py",
        "unit/consumer/test_loop_time.py",
        "unit/group/test_members.py",
        "unit/producer/test_native_sends.py",
        "unit/test_memory.py",
        "unit/testing/groups/test_groups_chaos.py",
        "unit/testing/groups/test_groups_peers.py",
        "unit/testing/test_bounds.py",
        "unit/testing/test_consumer_group_peers.py",
        "unit/testing/test_large_requests.py",
        "unit/testing/test_peers.py",
        "unit/testing/test_plugin.py",
        "unit/testing/test_server_assignors.py",
    )
)
