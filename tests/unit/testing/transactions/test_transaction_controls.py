"""Tests of the controls of transactions, and of states that only these controls can cause."""

import pytest

from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster
from aiokclient.types import TopicPartition

LAST_EPOCH = 32766


@pytest.fixture
def cluster():
    with EmbeddedCluster(3, topics={"orders": 2}, seed=7) as cluster:
        yield cluster


@pytest.fixture
def txn(cluster, txn_on):
    """A producer that is connected to its coordinator, which leads orders-0, too."""
    txn = txn_on(cluster, 2, "t", broker=1)
    cluster.move_leader("orders", 0, 1)
    cluster.move_coordinator("t", 1)
    cluster.move_coordinator("g", 1)
    assert txn.init() == ("ok", 0, 0)
    return txn


def state(cluster):
    return cluster.transactions["t"].state


def test_held_markers_keep_the_transaction_ending(cluster, txn):
    txn.produce("orders", b"a")
    with cluster.hold_markers("t"):
        assert txn.commit()[0] == "ok"
        assert state(cluster) == "PrepareCommit"
        assert cluster.transactions["t"].partitions == {TopicPartition("orders", 0)}
        for answer in (
            txn.produce("orders", wait=False)[0],
            txn.add(("orders", 1), wait=False)[0],
            txn.add_group("g", wait=False),
            txn.offsets("g", "orders", 1, wait=False)[0],
            txn.end(wait=False)[0],
            txn.init(wait=False)[0],
        ):
            assert answer == "CONCURRENT_TRANSACTIONS"
        assert txn.produce("orders", version=11, wait=False)[0] == "NOT_ENOUGH_REPLICAS"
        assert txn.log("orders") == ("ok", 1, 0, [], [])
    assert txn.produce("orders", b"b") == ("ok", 2)
    assert txn.log("orders") == ("ok", 3, 2, [], [b"a"])


def test_held_markers_of_another_id_do_not_matter(cluster, txn):
    txn.produce("orders")
    with cluster.hold_markers("other"):
        txn.commit()
        cluster.wait_for(lambda: state(cluster) == "CompleteCommit")


def test_a_moved_coordinator_completes_a_transaction(cluster, txn, txn_on):
    txn.produce("orders", b"a")
    with cluster.hold_markers():
        txn.commit()
        assert cluster.move_coordinator("t", 2) == 2
        assert txn.end(wait=False)[0] == "NOT_COORDINATOR"
        assert txn.describe()[0] == "NOT_COORDINATOR"
        assert cluster.transactions["t"].coordinator == 2
        assert state(cluster) == "PrepareCommit"
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")
    moved = txn_on(cluster, 2, "t", broker=2)
    moved.pid, moved.epoch = txn.pid, txn.epoch
    assert moved.describe()[1] == "CompleteCommit"
    assert moved.commit(epoch=0)[0] == "ok"
    assert txn.log("orders") == ("ok", 2, 2, [], [b"a"])


def test_a_stopped_coordinator_is_replaced_and_the_timeout_still_aborts(cluster, txn_on):
    cluster.move_coordinator("t", 3)
    first = txn_on(cluster, 2, "t", broker=3)
    assert first.init(400) == ("ok", 0, 0)
    leader = next(index for index in (0, 1) if cluster.leader("orders", index) != 3)
    writer = txn_on(cluster, 2, "t", broker=cluster.leader("orders", leader))
    writer.pid, writer.epoch = first.pid, first.epoch
    assert writer.produce("orders", index=leader)[0] == "ok"
    cluster.stop(3)
    assert cluster.transactions["t"].coordinator in (1, 2)
    cluster.wait_for(lambda: state(cluster) == "CompleteAbort")
    assert cluster.transactions["t"].producer_epoch == 1
    assert writer.produce("orders", index=leader)[0] == "INVALID_PRODUCER_EPOCH"


def test_a_loading_coordinator_answers_so(cluster, txn):
    with cluster.hold_transaction_loading("t"):
        loading = "COORDINATOR_LOAD_IN_PROGRESS"
        assert txn.send_init().error_code == 14
        assert txn.end(wait=False)[0] == loading
        assert txn.add(("orders", 0), wait=False) == [loading]
        assert txn.add_group("g", wait=False) == loading
        assert txn.describe()[0] == loading
        assert txn.produce("orders", wait=False)[0] == "NOT_ENOUGH_REPLICAS"
        assert txn.offsets("g", "orders", 1) == [loading]
        assert cluster.transactions["t"].coordinator is None
    assert txn.produce("orders")[0] == "ok"


def test_a_marker_waits_for_a_leader(cluster, txn):
    cluster.create_topic("lone", replication=1)
    leader = cluster.leader("lone")
    other = TopicPartition("lone", 0)
    assert txn.add(("lone", 0), ("orders", 0), version=4) == ["ok", "ok"]
    if leader == 1:
        leader = cluster.move_leader("lone", 0, 2)
    cluster.stop(leader)
    txn.commit()
    left = {other} if cluster.leader("lone") == -1 else set()
    cluster.wait_for(lambda: cluster.transactions["t"].partitions == left)
    cluster.start(leader)
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")


def test_a_marker_waits_for_the_group(cluster, txn):
    txn.offsets("g", "orders", 3)
    with cluster.hold_loading("g"):
        txn.commit()
        assert state(cluster) == "PrepareCommit"
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")
    assert cluster.committed("g")[TopicPartition("orders", 0)].offset == 3


def test_a_deleted_topic_needs_no_marker(cluster, txn):
    cluster.create_topic("gone")
    assert txn.add(("gone", 0), version=4) == ["ok"]
    with cluster.hold_markers():
        txn.commit()
        cluster.delete_topic("gone")
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")


def test_the_epochs_of_a_producer_id_end_with_a_new_one(cluster, txn):
    cluster.set_producer_epoch("t", LAST_EPOCH - 1)
    assert txn.init() == ("ok", 0, LAST_EPOCH)
    txn.produce("orders", b"a")
    old = txn.copy()
    assert txn.commit() == ("ok", 1, 0)
    assert txn.produce("orders", b"b")[0] == "ok"
    assert txn.log("orders")[-1] == [b"a"]
    assert old.abort()[0] == "INVALID_PRODUCER_ID_MAPPING"
    assert txn.commit() == ("ok", 1, 1)
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")
    assert txn.log("orders")[-1] == [b"a", b"b"]


def test_a_repeated_end_is_recognized_after_the_epochs_ended(cluster, txn):
    cluster.set_producer_epoch("t", LAST_EPOCH - 1)
    txn.init()
    txn.produce("orders")
    old = txn.copy()
    assert txn.commit() == ("ok", 1, 0)
    assert old.commit(keep=False) == ("ok", 1, 0)
    assert old.abort(keep=False)[0] == "INVALID_TXN_STATE"


def test_init_gives_a_new_producer_id_after_the_last_epoch(cluster, txn):
    cluster.set_producer_epoch("t", LAST_EPOCH)
    pid = txn.pid
    assert txn.init(known=(pid, LAST_EPOCH)) == ("ok", 1, 0)
    assert txn.init(known=(pid, LAST_EPOCH)) == ("ok", 1, 0)
    assert txn.init(known=(pid, 5))[0] == "PRODUCER_FENCED"


def test_a_test_can_time_out_a_transaction(cluster, txn):
    with pytest.raises(ValueError, match="has no open transaction"):
        cluster.time_out_transaction("t")
    txn.produce("orders")
    cluster.time_out_transaction("t")
    cluster.wait_for(lambda: state(cluster) == "CompleteAbort")
    assert txn.produce("orders")[0] == "INVALID_PRODUCER_EPOCH"
    assert txn.commit()[0] == "INVALID_TXN_STATE"
    assert txn.log("orders")[3] == [(0, 0)]


def test_a_test_can_make_a_transaction_hang_until_the_next_one_ends(cluster, txn):
    with pytest.raises(ValueError, match="has no open transaction"):
        cluster.hang_transaction("t")
    txn.produce("orders", b"a")
    cluster.hang_transaction("t")
    assert state(cluster) == "CompleteAbort"
    assert cluster.transactions["t"].partitions == frozenset()
    assert txn.commit()[0] == "INVALID_TXN_STATE"
    assert txn.log("orders")[:3] == ("ok", 1, 0)  # The last stable offset stays at the record.
    assert txn.init() == ("ok", 0, 1)
    assert txn.produce("orders", b"b") == ("ok", 1)
    assert txn.commit()[0] == "ok"
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")
    assert txn.log("orders")[:3] == ("ok", 3, 3)


def test_a_test_can_forget_a_transactional_id(cluster, txn):
    txn.produce("orders")
    with pytest.raises(ValueError, match="is in use"):
        cluster.forget_transactional_id("t")
    txn.abort()
    cluster.wait_for(lambda: state(cluster) == "CompleteAbort")
    cluster.forget_transactional_id("t")
    assert cluster.transactions == {}
    assert txn.end()[0] == "INVALID_PRODUCER_ID_MAPPING"
    assert txn.describe()[0] == "TRANSACTIONAL_ID_NOT_FOUND"


def test_reset_ends_what_is_held(cluster, txn):
    txn.produce("orders")
    holding = cluster.hold_markers()
    holding.__enter__()
    txn.commit()
    cluster.reset()
    cluster.wait_for(lambda: state(cluster) == "CompleteCommit")
    holding.__exit__(None, None, None)


def test_unknown_levels_and_ids_are_refused(cluster):
    with pytest.raises(ValueError, match="Use 0, 1, or 2"):
        cluster.set_transaction_version(3)
    with pytest.raises(ValueError, match="Use 0, 1, or 2"):
        EmbeddedCluster(transaction_version=-1)
    with pytest.raises(ValueError, match="There is no transactional id 'x'"):
        cluster.set_producer_epoch("x", 1)
    with pytest.raises(ValueError, match="Use 0 to 32767"):
        cluster.set_producer_epoch("x", 1 << 15)


def test_a_change_of_the_level_is_announced_in_a_higher_epoch(cluster, wire):
    asked = messages.ApiVersionsRequest(client_software_name="t", client_software_version="1")
    seen = []
    for level in (2, 1, 0, 2):
        cluster.set_transaction_version(level)
        answer = wire.to(1).request(asked, 4)
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        seen.append((answer.finalized_features_epoch, levels.get("transaction.version", 0)))
        assert cluster.transaction_version == level
    assert seen == [(0, 2), (1, 1), (2, 0), (3, 2)]
