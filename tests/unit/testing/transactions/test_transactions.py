"""Tests of transactions on the embedded cluster, by raw requests."""

import pytest

from aiokclient.testing import EmbeddedCluster
from aiokclient.types import TopicPartition


@pytest.fixture(params=[2, 1, 0])
def level(request):
    return request.param


@pytest.fixture
def cluster(level):
    with EmbeddedCluster(topics={"orders": 2}, seed=7, transaction_version=level) as cluster:
        yield cluster


def test_a_transaction_is_read_after_its_commit_only(cluster, level, txn_on):
    txn = txn_on(cluster, level)
    assert txn.init() == ("ok", 0, 0)
    if level < 2:
        assert txn.add(("orders", 0)) == ["ok"]
    assert txn.produce("orders", b"a", b"b") == ("ok", 0)
    assert cluster.transactions[txn.id].state == "Ongoing"
    assert txn.log("orders") == ("ok", 2, 0, [], [])
    code, _, epoch = txn.commit()
    assert (code, epoch) == ("ok", 1 if level == 2 else -1)
    cluster.wait_for(lambda: cluster.transactions[txn.id].state == "CompleteCommit")
    assert txn.log("orders") == ("ok", 3, 3, [], [b"a", b"b"])


def test_offsets_are_committed_with_the_transaction(cluster, level, txn_on):
    txn = txn_on(cluster, level)
    txn.init()
    for commit in (False, True):
        if level < 2:
            assert txn.add_group("g") == "ok"
        assert txn.offsets("g", "orders", 5, 6) == ["ok", "ok"]
        assert cluster.committed("g") == {}
        assert cluster.pending_offsets("g")[txn.pid][TopicPartition("orders", 1)].offset == 6
        found = txn.committed("g", "orders", settled=False)
        assert found == ("ok", [("UNSTABLE_OFFSET_COMMIT", -1, "")])
        assert txn.end(commit)[0] == "ok"
        cluster.wait_for(lambda: not cluster.pending_offsets("g"))
    assert txn.committed("g", "orders", 2) == ("ok", [("ok", 5, "m"), ("ok", 6, "m")])


def test_a_new_producer_aborts_and_fences_the_old_one(cluster, level, txn_on):
    old = txn_on(cluster, level)
    old.init()
    if level < 2:
        old.add(("orders", 0))
    old.produce("orders")
    new = old.twin()
    with cluster.hold_markers():
        assert new.init(wait=False)[0] == "CONCURRENT_TRANSACTIONS"
        assert cluster.transactions[old.id].state == "PrepareAbort"
        assert new.init(wait=False)[0] == "CONCURRENT_TRANSACTIONS"
    assert new.init() == ("ok", 0, 2)
    assert old.commit()[0] == "PRODUCER_FENCED"
    assert old.produce("orders")[0] == "INVALID_PRODUCER_EPOCH"
    assert new.log("orders") == ("ok", 2, 2, [(0, 0)], [b"v"])
