"""Tests of ListOffsets: the start and end of a log, and offsets by timestamp."""

import pytest

from aiokclient import errors
from aiokclient.record.batch import Compression

LATEST, EARLIEST, MAX, LOCAL, TIERED, PENDING = range(-1, -7, -1)


@pytest.fixture
def leader(cluster, wire):
    """Return the leader of a log with timestamps 100, 101, 300, 301, and 200, in three batches."""
    leader = wire.leader()
    for first, count in ((100, 2), (300, 2), (200, 1)):
        batch = wire.batch(*[b"v"] * count, timestamp=first, compression=Compression.GZIP)
        assert leader.produce("orders", batch).error_code == 0
    return leader


def found(leader, timestamp, **options):
    answer = leader.list_offset("orders", timestamp, **options)
    return answer.error_code, answer.offset, answer.timestamp


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_returns_offsets(leader, version):
    assert found(leader, LATEST, version=version) == (0, 5, -1)
    assert found(leader, EARLIEST, version=version) == (0, 0, -1)
    assert found(leader, 150, version=version) == (0, 2, 300)


@pytest.mark.parametrize(
    ("timestamp", "offset", "at"),
    [(0, 0, 100), (100, 0, 100), (101, 1, 101), (102, 2, 300), (301, 3, 301), (302, -1, -1)],
)
def test_offsets_are_found_by_timestamp(leader, timestamp, offset, at):
    assert found(leader, timestamp) == (0, offset, at)


def test_special_timestamps_have_their_meanings(leader):
    assert found(leader, MAX) == (0, 3, 301)
    assert found(leader, LOCAL) == (0, 0, -1)
    assert found(leader, TIERED) == (0, -1, -1)
    assert found(leader, PENDING) == (0, -1, -1)


@pytest.mark.parametrize(
    ("timestamp", "version"), [(MAX, 6), (LOCAL, 7), (TIERED, 8), (PENDING, 10), (-7, 11)]
)
def test_special_timestamps_require_their_versions(leader, timestamp, version):
    unsupported = errors.UnsupportedVersionError.code
    assert found(leader, timestamp, version=version)[0] == unsupported


def test_the_start_offset_follows_deleted_records(cluster, leader):
    cluster.delete_records("orders", 0, before=1)
    assert found(leader, EARLIEST) == (0, 1, -1)
    assert found(leader, 0) == (0, 1, 101)


def test_the_end_offset_waits_for_replicas(cluster, wire, leader):
    with cluster.hold_replication("orders", 0):
        leader.produce("orders", wire.batch(b"v", timestamp=400), acks=1)
        assert found(leader, LATEST) == (0, 5, -1)
        assert found(leader, 350) == (0, -1, -1)
    assert found(leader, LATEST) == (0, 6, -1)


def test_leaders_and_epochs_are_checked(cluster, wire, leader):
    epoch = cluster.bump_epoch("orders", 0)
    assert leader.list_offset("orders", LATEST).leader_epoch == epoch
    assert leader.list_offset("orders", EARLIEST).leader_epoch == 0
    fenced, unknown = errors.FencedLeaderEpochError.code, errors.UnknownLeaderEpochError.code
    assert found(leader, LATEST, epoch=0)[0] == fenced
    assert found(leader, LATEST, epoch=2)[0] == unknown
    assert found(leader, LATEST, epoch=1)[0] == 0
    not_leader = errors.NotLeaderOrFollowerError.code
    assert found(wire.follower(), LATEST)[0] == not_leader


def test_unknown_partitions_are_refused(leader):
    unknown = errors.UnknownTopicOrPartitionError.code
    assert found(leader, LATEST, partition=9)[0] == unknown
    assert leader.list_offset("nothing", LATEST).error_code == unknown


def test_an_empty_log_has_equal_offsets(wire):
    leader = wire.leader("orders", 1)
    for timestamp, offset in ((LATEST, 0), (EARLIEST, 0), (MAX, -1), (5, -1)):
        assert found(leader, timestamp, partition=1)[:2] == (0, offset)
