"""Tests of requests with a `timeout_ms` of 0 or less: the response and the effect, as in Kafka."""

import uuid

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import create_partitions, create_topics
from aiokclient.protocol.messages import delete_records as deletion
from aiokclient.protocol.messages.delete_topics import DeleteTopicState

TIMEOUTS = (0, -1, -60_000)
SCENARIOS = Scenarios()
scenario = SCENARIOS.add


def told(answer):
    """Return the error's name, and whether its message is null, empty, or a text."""
    return named(answer.error_code), answer.error_message and "text"


def fresh():
    return f"timeouts-{uuid.uuid4().hex[:8]}"


@scenario
def topics_created(broker):
    taken, _ = broker.topic()

    def create(*names, timeout=60_000, version=7, replication=1, **options):
        topics = [
            create_topics.CreatableTopic(
                name=name, num_partitions=1, replication_factor=replication
            )
            for name in names
        ]
        request = messages.CreateTopicsRequest(topics=topics, timeout_ms=timeout, **options)
        return sorted(
            (*told(each), each.topic_id.int != 0, each.num_partitions, each.replication_factor)
            for each in broker.request(request, version).topics
        )

    seen = []
    for timeout in TIMEOUTS:
        for version in (2, 4, 5, 7):
            name = fresh()
            seen.append((timeout, version, create(name, timeout=timeout, version=version)))
            seen.append(create(name))
        name = fresh()
        seen.append(create(name, timeout=timeout, validate_only=True))
        seen.append(create("a b", taken, name, timeout=timeout))
        seen.append(create(name, name, fresh(), timeout=timeout))
        seen.append(create(name, name, timeout=timeout))
        seen.append(create(name, replication=9, timeout=timeout))
        seen.append(create(timeout=timeout))
        seen.append(create(name))
    return seen


@scenario
def topics_deleted(broker):
    def by_names(*names, timeout=60_000, version=5):
        request = messages.DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout)
        return sorted(told(each) for each in broker.request(request, version).responses)

    def by_states(*states, timeout=60_000):
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
        request = messages.DeleteTopicsRequest(topics=topics, timeout_ms=timeout)
        return sorted(
            (*told(each), each.name is None, each.topic_id.int != 0)
            for each in broker.request(request, 6).responses
        )

    none, seen = uuid.UUID(int=0), []
    for timeout in TIMEOUTS:
        name, topic_id = broker.topic()
        for version in (1, 4, 5):
            seen.append((timeout, by_names(name, "nothing", timeout=timeout, version=version)))
        seen.append(by_states((name, none), timeout=timeout))
        seen.append(by_states((None, topic_id), timeout=timeout))
        seen.append(by_states((None, uuid.uuid4()), ("nothing", none), timeout=timeout))
        seen.append(by_states((name, topic_id), timeout=timeout))
        seen.append(by_states((name, topic_id), ("nothing", none), timeout=timeout))
        seen.append(by_states(timeout=timeout))
        seen.append(by_names(name, name, timeout=timeout))
        seen.append(by_names(name, name, "nothing", timeout=timeout))
        seen.append(by_states((name, none), (None, topic_id), timeout=timeout))
        seen.append(by_states((None, topic_id), (None, topic_id), timeout=timeout))
        seen.append(by_names(name, name))
        seen.append(by_states((None, topic_id), (None, topic_id)))
        seen.append(by_states((name, none), (None, topic_id)))
        seen.append(by_names(name))
    return seen


@scenario
def partitions_added(broker):
    def add(*topics, timeout=60_000, version=3, validate_only=False):
        wanted = [
            create_partitions.CreatePartitionsTopic(name=each, count=count, assignments=None)
            for each, count in topics
        ]
        request = messages.CreatePartitionsRequest(
            topics=wanted, timeout_ms=timeout, validate_only=validate_only
        )
        return sorted(told(each) for each in broker.request(request, version).results)

    seen = []
    for timeout in TIMEOUTS:
        name, _ = broker.topic()
        seen.append((timeout, add((name, 2), timeout=timeout)))
        seen.append(add((name, 2), ("nothing", 2), timeout=timeout, version=0))
        seen.append(add((name, 2), timeout=timeout, validate_only=True))
        seen.append(add((name, 2), (name, 2), timeout=timeout))
        seen.append(add((name, 2), (name, 2), ("nothing", 2), timeout=timeout))
        seen.append(add((name, 1), timeout=timeout))
        seen.append(add(timeout=timeout))
        seen.append(add((name, 2)))
    return seen


@scenario
def records_written_and_deleted(broker):
    """Write and delete records of a single replica, which waits for no other replica."""
    topic, _ = broker.topic()

    def delete(offset, timeout):
        partition = deletion.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [deletion.DeleteRecordsTopic(name=topic, partitions=[partition])]
        answer = broker.request(messages.DeleteRecordsRequest(topics=topics, timeout_ms=timeout))
        (result,) = answer.topics[0].partitions
        return named(result.error_code), result.low_watermark

    def produce(acks, timeout):
        batch = broker.wire.batch(b"v")
        answer = broker.connection.produce(topic, batch, acks=acks, timeout_ms=timeout)
        return named(answer.error_code), answer.base_offset

    seen = []
    for timeout in TIMEOUTS:
        seen += [produce(acks, timeout) for acks in (-1, 1)]
        seen += [delete(-1, timeout), delete(99, timeout)]
    return seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_requests_without_time_are_answered_as_by_kafka(name, parity):
    parity(SCENARIOS[name])
