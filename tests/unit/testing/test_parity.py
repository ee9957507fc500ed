"""Tests that the embedded cluster and a real Kafka answer raw requests about records alike.

Each scenario uses one broker and returns what it saw. Both results must be equal. The two
clusters may differ only in data that a scenario omits from its result.
"""

import uuid

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import offset_for_leader_epoch
from aiokclient.record.batch import Compression, RecordBatchBuilder
from aiokclient.record.control import control_batch
from aiokclient.record.crc import crc32c

NOW = 1_700_000_000_000
SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def patched(batch, at, content):
    """Return the batch with other bytes from `at` on, and with the matching checksum."""
    twisted = bytearray(batch)
    twisted[at : at + len(content)] = content
    twisted[17:21] = crc32c(twisted[21:]).to_bytes(4, "big")
    return bytes(twisted)


@scenario
def produce_refusals(broker):
    topic, topic_id = broker.topic(max_message_bytes=2000)
    good = broker.wire.batch(b"a", b"b")
    twisted = good[:-1] + b"?"
    batches = {
        "good": good,
        "twisted": twisted,
        "cut": good[:-1],
        "rubbish": b"rubbish" * 20,
        "zeros": bytes(100),
        "two": good + good,
        "half more": good + good[:30],
        "miscounted": patched(good, 57, (3).to_bytes(4, "big")),
        "uneven": patched(good, 23, (5).to_bytes(4, "big")),
        "backward": patched(good, 23, b"\xff\xff\xff\xff"),
        "unknown codec": patched(good, 22, b"\x05"),
        "old": good[:16] + b"\x01" + good[17:],
        "producer": patched(good, 43, (5).to_bytes(8, "big")),
        "control": control_batch(1, b"", 0),
        "large": broker.wire.batch(bytes(3000)),
        "future": broker.wire.batch(b"v", timestamp=1 << 42),
        "zstd": broker.wire.batch(bytes(1000), compression=Compression.ZSTD),
    }
    seen = []
    for name, batch in batches.items():
        for version in (6, 9, 12):
            answer = broker.connection.produce(topic, batch, version=version)
            seen.append((name, version, named(answer.error_code), answer.base_offset))
    for acks in (0, 1, -1, 2, -2):
        if acks:
            answer = broker.connection.produce(topic, good, acks=acks)
            seen.append((acks, named(answer.error_code), answer.base_offset >= 0))
    seen.append(named(broker.connection.produce("nothing", good).error_code))
    seen.append(named(broker.connection.produce(topic, good, 7).error_code))
    seen.append(named(broker.connection.produce(uuid.uuid4(), good).error_code))
    seen.append(named(broker.connection.produce(topic_id, good, 7).error_code))
    return seen


@scenario
def an_error_without_acks(broker):
    broker.connection.produce("nothing", broker.wire.batch(b"v"), acks=0)
    return broker.connection.closed()


@scenario
def sequences(broker):
    topic, _ = broker.topic()
    seen = []
    for epoch, sequence in [
        *((0, each) for each in range(0, 14, 2)),
        *((0, each) for each in (12, 4, 2, 16, 13)),
        *((1, 2), (1, 0), (0, 14), (1, 0), (1, 4), (1, 2)),
    ]:
        seen.append(broker.produced(topic, b"a", b"b", producer=(4711, epoch, sequence)))
    other, last = broker.topic()[0], (1 << 31) - 2
    for sequence in (last, 0, 2, last, 1):
        seen.append(broker.produced(other, b"a", b"b", producer=(4712, 0, sequence)))
    seen.append(broker.produced(broker.topic()[0], b"a", producer=(4713, 3, 77)))
    seen.append(broker.produced(broker.topic()[0], b"a", producer=(4713, 3, -1)))
    return seen


@scenario
def compacted_and_stamped(broker):
    topic, _ = broker.topic(cleanup_policy="compact")
    seen = [broker.produced(topic, b"v"), broker.produced(topic, b"v", key=b"k")]
    stamped, _ = broker.topic(message_timestamp_type="LogAppendTime")
    batch = broker.wire.batch(b"v", producer=(1, 0, 0))
    first, again = (broker.connection.produce(stamped, batch) for _ in range(2))
    seen.append((first.log_append_time_ms > 0, again.base_offset))
    seen.append(first.log_append_time_ms == again.log_append_time_ms)
    old, _ = broker.topic(message_timestamp_before_max_ms=1000)
    return [*seen, broker.produced(old, b"v")]


@scenario
def records_refused(broker):
    """Produce batches with invalid records, and return which records the leader refuses."""

    def produced(topic, *records, version=12, compression=Compression.NONE):
        builder = RecordBatchBuilder(compression=compression, limit=1 << 20)
        for timestamp, key in records:
            builder.append(timestamp, key, b"v")
        builder.close()
        answer = broker.connection.produce(topic, bytes(builder.seal()), version=version)
        refused = [each.batch_index for each in answer.record_errors]
        told = [bool(each.batch_index_error_message) for each in answer.record_errors]
        about = answer.base_offset, answer.log_start_offset, bool(answer.error_message)
        return named(answer.error_code), *about, refused, told

    long_ago, never, some_day = 1000, -1, 1 << 42
    compacted, _ = broker.topic(cleanup_policy="compact")
    timely, _ = broker.topic(message_timestamp_before_max_ms=1 << 40)
    both, _ = broker.topic(cleanup_policy="compact", message_timestamp_before_max_ms=1 << 40)
    keys = [(NOW, b"k"), (NOW, None), (NOW, b"k"), (NOW, None)]
    times = [(NOW, None), (long_ago, None), (never, None), (some_day, None), (NOW, None)]
    seen = [produced(compacted, *keys, version=version) for version in (7, 8, 12)]
    seen += [produced(timely, *times, version=version) for version in (7, 8, 12)]
    seen.append(produced(compacted, *keys, compression=Compression.GZIP))
    seen.append(produced(timely, *times[:3], compression=Compression.GZIP))
    seen.append(produced(timely, times[0], times[2]))
    seen.append(produced(both, (NOW, None), (long_ago, b"k"), (long_ago, None), (NOW, b"k")))
    return seen


@scenario
def fetch_ranges(broker):
    topic, topic_id = broker.topic()
    for number in range(5):
        broker.produced(topic, bytes(100 + number), timestamp=NOW)
    seen = [broker.fetched(topic_id, offset=each) for each in (0, 3, 5, 6, -1, 1 << 40)]
    seen += [broker.fetched(topic, offset=each, version=11) for each in (0, 6)]
    seen += [broker.fetched(topic_id, partition_max_bytes=each) for each in (0, 1, 171, 400)]
    seen += [broker.fetched(topic_id, max_bytes=each) for each in (0, 1, 171, 400)]
    seen += [broker.fetched(topic_id, epoch=each) for each in (0, 1)]
    seen += [broker.fetched(topic_id, offset=5, last_epoch=each) for each in (0, 1)]
    seen += [broker.fetched(topic_id, partitions=[4]), broker.fetched(topic, partitions=[4])]
    seen += [broker.fetched(uuid.uuid4()), broker.fetched("nothing")]
    seen += [broker.fetched(topic_id, committed=True)]
    return seen


@scenario
def fetch_over_partitions(broker):
    _, topic_id = broker.topic(3)
    for partition in range(3):
        batch = broker.wire.batch(bytes(1000), timestamp=NOW)
        broker.connection.produce(topic_id, batch, partition)
    seen = []
    for limit in (1, 1500, 3000, 10_000):
        request = broker.wire.fetch_request(topic_id, partitions=[2, 0, 1], max_bytes=limit)
        partitions = broker.request(request).responses[0].partitions
        seen.append([(each.partition_index, len(each.records)) for each in partitions])
    return seen


@scenario
def fetch_sessions(broker):
    _, topic_id = broker.topic(3)
    seen = []

    def ask(topic, session, **options):
        response = broker.request(broker.wire.fetch_request(topic, session=session, **options))
        partitions = [
            (each.partition_index, named(each.error_code), len(each.records or b""))
            for topic in response.responses
            for each in topic.partitions
        ]
        seen.append((named(response.error_code), response.session_id != 0, partitions))
        return response.session_id

    number = ask(topic_id, (0, 0), partitions=[0, 1, 2])
    ask(None, (number, 1))
    broker.connection.produce(topic_id, broker.wire.batch(b"v", timestamp=NOW), 1)
    ask(None, (number, 2))
    ask(None, (number, 3))
    ask(topic_id, (number, 4), offset=1, partitions=[1])
    ask(None, (number, 9))
    ask(None, (number + 1, 5))
    ask(topic_id, (number, 5), partitions=[7])
    ask(None, (number, 6))
    ask(None, (number, 7), forget=(topic_id, [7, 2]))
    for partition in range(3):
        broker.connection.produce(topic_id, broker.wire.batch(b"v", timestamp=NOW), partition)
    ask(None, (number, 8), max_bytes=1)
    ask(None, (number, 9), max_bytes=1)
    ask(None, (number, 10), forget=(topic_id, [0, 1]))
    ask(None, (number, 11))
    number = ask(topic_id, (0, 0))
    ask(topic_id, (number, -1))
    ask(None, (number, 1))
    ask(None, (0, 0))
    return seen


@scenario
def list_offsets(broker):
    topic, _ = broker.topic()
    seen = [broker.list_offset(topic, each) for each in (-1, -2, -3, -4, -5, -6, -7, 5)]
    for first in (100, 300, 200):
        broker.produced(topic, b"a", b"b", timestamp=NOW + first)
    for version in (1, 4, 6, 7, 8, 9, 10, 11):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7):
            seen.append((version, broker.list_offset(topic, timestamp, version=version)))
    for timestamp in (0, NOW + 100, NOW + 101, NOW + 150, NOW + 301, NOW + 302):
        seen.append(broker.list_offset(topic, timestamp))
    seen += [broker.list_offset(topic, -1, epoch=each) for each in (0, 1)]
    seen += [broker.list_offset(topic, -1, partition=5), broker.list_offset("nothing", -1)]
    seen.append(broker.list_offset(topic, -1, isolation=1))
    return seen


@scenario
def leader_epochs(broker):
    topic, _ = broker.topic()
    broker.produced(topic, b"a")
    seen = []
    for name, current, epoch in [
        *((topic, -1, each) for each in (-1, 0, 1, 5)),
        *((topic, 0, 0), (topic, 1, 0), ("nothing", -1, 0)),
    ]:
        asked = offset_for_leader_epoch.OffsetForLeaderPartition(
            partition=0, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=[asked])]
        request = messages.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        answer = broker.request(request).topics[0].partitions[0]
        seen.append((named(answer.error_code), answer.leader_epoch, answer.end_offset))
    return seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_record_requests_are_answered_as_by_kafka(name, parity):
    parity(SCENARIOS[name])
