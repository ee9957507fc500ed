"""Tests of compaction on demand: what stays, and in which form, as in Kafka's log cleaner."""

import time
import uuid
from typing import Any

import pytest

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.clock import SystemClock
from aiokclient.protocol import messages
from aiokclient.protocol.messages import incremental_alter_configs as incremental
from aiokclient.record.batch import RecordBatch, RecordBatchBuilder, walk
from aiokclient.testing import EmbeddedCluster

COMPACT = {"cleanup.policy": "compact"}
DAY_MS = 86_400_000
TIME = 1_700_000_000_000


class SetClock(SystemClock):
    """A clock with the wall-clock time that a test sets."""

    now_ms = TIME

    def time_ms(self) -> int:
        return self.now_ms

    def advance(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


@pytest.fixture
def cluster():
    with EmbeddedCluster() as cluster:
        cluster.create_topic("table", configs=COMPACT)
        yield cluster


def describe(batch: RecordBatch) -> tuple[Any, ...]:
    """Return the offsets, the producer, the attributes, and the records of a batch."""
    attributes = int.from_bytes(batch.buffer[21:23], "big")
    rows = [(row[0], row[1], row[2], row[3]) for row in batch.rows(check_crcs=True)]
    about = batch.producer_id >= 0, batch.producer_epoch, batch.base_sequence
    return batch.base_offset, batch.last_offset, attributes, *about, rows


def read_batches(cluster: EmbeddedCluster, topic: str = "table") -> list[tuple[Any, ...]]:
    """Return the batches of the only partition of a topic."""
    log = cluster._state.topics[topic].partitions[0].log
    return cluster._runner.call_in_loop(lambda: [describe(each) for each in log.read_batches()])


def read_values(cluster: EmbeddedCluster) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {each.offset: (each.key, each.value) for each in cluster.records("table")}


def test_the_last_record_of_each_key_stays_at_its_offset(cluster):
    cluster.produce("table", [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    cluster.produce("table", [(b"c", b"4"), (b"b", b"5"), (None, b"6")])
    cluster.produce("table", [(b"end", b"")])
    cluster.compact("table")
    assert read_values(cluster) == {
        2: (b"a", b"3"),
        3: (b"c", b"4"),
        4: (b"b", b"5"),
        6: (b"end", b""),
    }
    assert [each[:2] for each in read_batches(cluster)] == [(0, 2), (3, 5), (6, 6)]
    assert cluster.offsets("table") == (0, 7)


def test_batches_without_records_are_removed_and_leave_a_gap(cluster):
    for number in range(4):
        cluster.produce("table", [(b"a", b"%d" % number)])
    cluster.compact("table")
    assert read_values(cluster) == {3: (b"a", b"3")}
    assert cluster.produce("table", [(b"b", b"")])[0].offset == 4


def test_compaction_is_idempotent(cluster):
    for number in range(20):
        cluster.produce("table", [(b"%d" % (number % 3), b"v"), (b"%d" % (number % 5), None)])
    cluster.compact("table")
    batches = read_batches(cluster)
    cluster.compact("table", 0)
    assert read_batches(cluster) == batches


def test_the_last_batch_of_a_producer_stays_without_records(cluster):
    for sequence in range(2):
        cluster.produce(
            "table", [(b"a", b"v")], producer_id=7, producer_epoch=1, base_sequence=sequence
        )
    cluster.produce("table", [(b"a", b"w")])
    cluster.produce("table", [(b"end", b"")])
    cluster.compact("table")
    assert [each[:2] for each in read_batches(cluster)] == [(1, 1), (2, 2), (3, 3)]
    assert read_batches(cluster)[0] == (1, 1, 0, True, 1, 1, [])
    with pytest.raises(ValueError, match="OUT_OF_ORDER"):
        cluster.produce("table", [(b"a", b"")], producer_id=7, producer_epoch=1, base_sequence=5)
    cluster.produce("table", [(b"a", b"x")], producer_id=7, producer_epoch=1, base_sequence=2)
    cluster.compact("table")
    assert [each[0] for each in read_batches(cluster)] == [3, 4]


def write_transaction(
    cluster: EmbeddedCluster, producer_id: int, key: bytes, commit: bool, sequence: int = 0
) -> None:
    cluster.produce(
        "table",
        [(key, b"v")],
        producer_id=producer_id,
        base_sequence=sequence,
        transactional=True,
    )
    cluster.end_transaction("table", producer_id=producer_id, commit=commit)


def test_aborted_records_are_removed_and_open_transactions_are_not_touched(cluster):
    cluster.produce("table", [(b"a", b"kept")])
    write_transaction(cluster, 1, b"a", commit=False)
    write_transaction(cluster, 2, b"b", commit=True)
    cluster.produce("table", [(b"c", b"1")], producer_id=3, transactional=True)
    cluster.produce("table", [(b"c", b"2")])
    cluster.compact("table")
    found = read_values(cluster)
    assert found == {0: (b"a", b"kept"), 3: (b"b", b"v"), 5: (b"c", b"1"), 6: (b"c", b"2")}
    # The batch of the aborted transaction stays for its producer's sequence.
    assert [each[0] for each in read_batches(cluster)] == [0, 1, 2, 3, 4, 5, 6]


async def test_committed_readers_see_the_same_before_and_after_compaction(cluster):
    async def read() -> list[Any]:
        async with Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            consumer.assign([TopicPartition("table", 0)])
            return [(each.offset, each.key) async for each in consumer.until_end()]

    for number in range(6):
        commit, sequence = number % 3 > 0, number // 2
        write_transaction(cluster, number % 2, b"%d" % number, commit, sequence)
    cluster.produce("table", [(b"end", b"")])
    before = await read()
    assert len(before) == 5
    for _ in range(3):
        cluster.compact("table")
        assert await read() == before


def test_tombstones_stay_for_their_time():
    clock = SetClock()
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic("table", configs=COMPACT)
        cluster.produce("table", [(b"a", b"v"), (b"b", b"v")], timestamp=TIME)
        cluster.produce("table", [(b"a", None)], timestamp=TIME)
        cluster.produce("table", [(b"end", b"")], timestamp=TIME)
        cluster.compact("table")
        horizon = clock.time_ms() + DAY_MS
        (_, tombstone, _) = read_batches(cluster)
        assert tombstone[2] == 0x40
        assert tombstone[-1] == [(2, TIME, b"a", None)]
        log = cluster._state.topics["table"].partitions[0].log
        assert [each.base_timestamp for each in log.read_batches()] == [TIME, horizon, TIME]
        clock.advance(DAY_MS - 1)
        cluster.compact("table")
        assert sorted(read_values(cluster)) == [1, 2, 3]
        clock.advance(1)
        cluster.compact("table")
        assert sorted(read_values(cluster)) == [1, 3]


def test_markers_of_transactions_without_records_go_after_their_time():
    clock = SetClock()
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic("table", configs=COMPACT)
        for key in (b"a", b"b"):
            write_transaction(cluster, 1, key, commit=False)
            cluster.produce("table", [(key, b"v")], producer_id=1, base_sequence=1)
            cluster.forget_producers("table")
        cluster.produce("table", [(b"end", b"")])
        log = cluster._state.topics["table"].partitions[0].log
        cluster.compact("table")
        assert [each[0] for each in read_batches(cluster)] == [1, 2, 4, 5, 6]
        assert len(log.producers.aborted) == 2
        cluster.compact("table")
        assert [each[2] & 0x40 for each in read_batches(cluster)] == [0x40, 0, 0x40, 0, 0]
        assert log.producers.aborted == []
        clock.advance(DAY_MS)
        cluster.compact("table")
        assert [each[0] for each in read_batches(cluster)] == [2, 5, 6]


def test_fetches_in_a_gap_begin_after_it(cluster, wire_to):
    for number in range(10):
        cluster.produce("table", [(b"%d" % (number % 9), b"v")])
    for _ in range(3):
        cluster.produce("table", [(b"0", b"v")])
    cluster.compact("table")
    offsets = sorted(read_values(cluster))
    assert offsets == [*range(1, 9), 12]
    connection = wire_to(cluster).to(1)
    for offset, expected in ((0, 1), (8, 8), (9, 12), (11, 12), (12, 12)):
        answer = connection.fetch("table", offset=offset)
        assert next(iter(walk(answer.records))).base_offset == expected


def test_times_are_found_in_a_compacted_log(cluster, wire_to):
    for number in range(5):
        timestamp = TIME + number
        cluster.produce("table", [(b"a", b"v")], timestamp=timestamp, producer_id=number)
    cluster.produce("table", [(b"end", b"")], timestamp=TIME + 2)
    cluster.compact("table")
    connection = wire_to(cluster).to(1)
    times = (TIME, TIME + 4, TIME + 5)
    found = [connection.list_offset("table", each).offset for each in times]
    assert found == [4, 4, -1]
    assert connection.list_offset("table", -3).offset == 4


def test_topics_that_are_not_compacted_are_refused(cluster):
    cluster.create_topic("stream")
    with pytest.raises(ValueError, match="Topic 'stream' is not compacted"):
        cluster.compact("stream")
    with pytest.raises(ValueError, match="There is no topic 'none'"):
        cluster.compact("none")


def test_internal_topics_can_be_compacted():
    with EmbeddedCluster(configs={"offsets.topic.num.partitions": 1}) as cluster:
        internal = cluster._state.internal

        def write_twice() -> None:
            for _ in range(2):
                internal.write_records("__consumer_offsets", "g", lambda: [(b"k", b"v")])

        cluster._runner.call_in_loop(write_twice)
        cluster.compact("__consumer_offsets")
        assert [each.offset for each in cluster.records("__consumer_offsets")] == [1]


# -- beside Kafka --------------------------------------------------------------------------------


def make_batch(
    timestamp: int,
    *records: tuple[bytes, bytes | None],
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    builder = RecordBatchBuilder(limit=1 << 20)
    for key, value in records:
        builder.append(timestamp, key, value)
    builder.close()
    return bytes(builder.seal(*producer))


async def write_transactions(servers: str, topic: str) -> None:
    """Write transactions that commit and that abort, to keys of their own and to the same one."""
    transactional_id = f"id-{uuid.uuid4().hex[:8]}"
    async with Producer(bootstrap_servers=servers, transactional_id=transactional_id) as producer:
        for key, commits in ((b"t1", True), (b"t2", False), (b"t1", True), (b"t1", False)):
            await producer.begin_transaction()
            await producer.send(topic, b"v", key=key)
            await (producer.commit_transaction() if commits else producer.abort_transaction())


def fill_table(connection: Any, topic: str) -> None:
    """Write batches of which compaction keeps all, some, or no records, and a last batch."""
    now_ms = time.time_ns() // 1_000_000
    wanted = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    ids = [connection.request(wanted).producer_id for _ in range(2)]
    assert min(ids) >= 0
    for batch in (
        make_batch(now_ms, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")),
        make_batch(now_ms + 1, (b"a", b"2"), (b"b", None)),
        make_batch(now_ms + 2, (b"d", b"1"), producer=(ids[0], 0, 0)),
        make_batch(now_ms + 3, (b"d", b"2"), producer=(ids[0], 0, 1)),
        make_batch(now_ms + 4, (b"d", b"3"), (b"e", b"1"), producer=(ids[1], 0, 0)),
        make_batch(now_ms + 5, (b"e", b"2")),
        # The time of this batch begins a new segment.
        make_batch(now_ms + 300_000, (b"end", b"")),
    ):
        assert connection.produce(topic, batch).error_code == 0


def fetch_batches(connection: Any, topic: str) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    # A real broker reads one segment at a time.
    while records := connection.fetch(topic, offset=found[-1][1] + 1 if found else 0).records:
        found += [describe(each) for each in walk(records)]
    # The producer ids and the times of the clusters differ.
    return [(*each[:-1], [(row[0], *row[2:]) for row in each[-1]]) for each in found]


def set_cleaner_backoff(connection: Any, milliseconds: str | None) -> None:
    """Let the cleaner of a real broker look for work more often, or as often as before."""
    operation = 1 if milliseconds is None else 0
    change = incremental.AlterableConfig(
        name="log.cleaner.backoff.ms", config_operation=operation, value=milliseconds
    )
    resource = incremental.AlterConfigsResource(resource_type=4, resource_name="", configs=[change])
    request = messages.IncrementalAlterConfigsRequest(resources=[resource])
    assert connection.request(request).responses[0].error_code == 0


@pytest.mark.kafka
async def test_compaction_keeps_what_the_cleaner_of_kafka_keeps(kafka, wire_to):
    configs = {**COMPACT, "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.01"}
    with EmbeddedCluster() as cluster:
        cluster.create_topic("table", configs=configs)
        wire = wire_to(cluster)
        await write_transactions(cluster.bootstrap_servers, "table")
        fill_table(wire.to(1), "table")
        written = len(fetch_batches(wire.to(1), "table"))
        cluster.compact("table")
        ours = fetch_batches(wire.to(1), "table")
        connection = wire.at(kafka.addresses()[0])
        set_cleaner_backoff(connection, "200")
        try:
            topic = kafka.create_topic(configs=configs)
            await write_transactions(kafka.bootstrap, topic)
            fill_table(connection, topic)
            deadline = time.monotonic() + 120
            theirs = fetch_batches(connection, topic)
            assert len(theirs) == written == 15
            while len(theirs) == written and time.monotonic() < deadline:
                # The answer comes after this time, because there are no records.
                connection.fetch(topic, offset=theirs[-1][1] + 1, wait_ms=300)
                theirs = fetch_batches(connection, topic)
        finally:
            set_cleaner_backoff(connection, None)
    assert ours == theirs
    forms = [(first, last, attributes, len(rows)) for first, last, attributes, *_, rows in ours]
    assert {(8, 10, 0, 1), (11, 12, 0x40, 2), (14, 14, 0, 0)} <= set(forms)
