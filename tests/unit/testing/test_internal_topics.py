"""Tests of the internal topics of the embedded cluster, and of what coordinators write to them."""

import asyncio
import re
import time
import uuid

import pytest

from aiokclient import Admin, Consumer, GroupMetadata, Producer, TopicPartition
from aiokclient.cli.records.internal_topics import decode_record
from aiokclient.protocol import messages
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.topics.internal_partition import InternalPartition

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
TIMES = ("commit_timestamp", "current_state_timestamp", "last_update_timestamp", "start_timestamp")
UUIDS = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def use_groups(servers, topic, name):
    """Use groups of both protocols and a transactional id, whose names begin with `name`."""
    async with Producer(bootstrap_servers=servers) as producer:
        await producer.send(topic, b"v")
    for protocol in ("classic", "consumer"):
        options = {"group_id": f"{name}-{protocol}", "group_protocol": protocol}
        async with Consumer(
            topic,
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer:
            await anext(aiter(consumer))
            await consumer.commit()
    async with Producer(bootstrap_servers=servers, transactional_id=f"{name}-id") as producer:
        async with producer.transaction():
            await producer.send(topic, b"v")
        async with producer.transaction():
            await producer.send(topic, b"v")
            group = GroupMetadata(f"{name}-classic")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 7}, group)
    async with Admin(bootstrap_servers=servers) as admin:
        (await admin.delete_groups([f"{name}-consumer"])).raise_for_errors()


async def read_decoded(servers, name):
    """Return the keys and values in the internal topics that are about `name`."""
    found = []
    for topic in (OFFSETS, TRANSACTIONS):
        async with Consumer(
            topic,
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            decoded = [decode_record(record) async for record in consumer.until_end()]
        found += [each for each in decoded if name in str(each[0])]
    # All records of one group are in one partition, in order.
    return sorted(found, key=lambda each: re.findall(rf"{name}-[a-z]+", str(each[0])))


def normalize(value, names):
    """Return a decoded record without ids, times, and hashes, which differ between clusters."""
    if isinstance(value, dict):
        hidden = {each: "?" for each in TIMES if value.get(each, -1) > 0}
        if "metadata_hash" in value:
            hidden["metadata_hash"] = "?"
        changed = {key: normalize(each, names) for key, each in value.items()}
        return changed | hidden
    if isinstance(value, list | tuple):
        return [normalize(each, names) for each in value]
    if isinstance(value, str):
        text = UUIDS.sub("uuid", value)
        for name, stand_in in names.items():
            text = text.replace(name, stand_in)
        return text
    return value


async def describe_use(servers, topic):
    """Return what a cluster has written about groups and a transactional id."""
    name = f"used-{uuid.uuid4().hex[:8]}"
    await use_groups(servers, topic, name)
    async with Admin(bootstrap_servers=servers) as admin:
        topics = await admin.describe_topics([topic, OFFSETS, TRANSACTIONS])
        internal = [each.internal for each in topics.values()]
    found = await read_decoded(servers, name)
    producer_ids = {value["producer_id"] for _, value in found if value and "producer_id" in value}
    assert len(producer_ids) == 1
    names = {name: "name", topic: "topic"}
    for _, value in found:
        for assigned in (value or {}).get("topic_partitions", ()):
            names[assigned["topic_id"]] = "topic id"
        if value and "producer_id" in value:
            assert value.pop("producer_id") == value.pop("previous_producer_id")
            for each in value["partitions"] or ():
                if each["topic"] == OFFSETS:
                    each["partition_ids"] = "?"
            # Kafka writes the topics of a transaction in any order.
            value["partitions"] = value["partitions"] and sorted(
                value["partitions"], key=lambda each: each["topic"]
            )
        for member in (value or {}).get("members", ()):
            # They contain the topic and its name's length.
            member["subscription"] = member["assignment"] = "?"
    return internal, normalize(found, names)


@pytest.mark.kafka
async def test_coordinators_write_what_those_of_kafka_write(kafka):
    topic = kafka.create_topic()
    with EmbeddedCluster(topics=[topic], auto_create_topics=False) as cluster:
        internal, ours = await describe_use(cluster.bootstrap_servers, topic)
    assert internal == [False, True, True]
    assert len(ours) > 20
    internal, theirs = await describe_use(kafka.bootstrap, topic)
    assert internal == [False, True, True]
    assert [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]] == []
    assert len(ours) == len(theirs)


def decode_all(cluster, topic):
    return [decode_record(record) for record in cluster.records(topic)]


def test_internal_topics_exist_after_their_first_use(cluster, wire):
    connection = wire.to(1)

    def listed():
        topics = connection.request(messages.MetadataRequest(topics=None)).topics
        return {each.name: len(each.partitions) for each in topics if each.is_internal}

    assert listed() == {}
    for kind, names in ((0, [OFFSETS]), (1, [OFFSETS, TRANSACTIONS])):
        find = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=["name"])
        assert connection.request(find).coordinators[0].error_code == 0
        assert listed() == dict.fromkeys(names, 50)
    assert cluster.topics == {"orders": 3}
    assert cluster.offsets(OFFSETS, 49) == (0, 0)


def test_ids_of_a_seed_do_not_depend_on_internal_topics():
    ids = []
    for uses_groups in (False, True):
        with EmbeddedCluster(seed=5) as cluster:
            if uses_groups:
                cluster._runner.call_in_loop(lambda: cluster._state.internal.open_topic(OFFSETS))
            ids.append(cluster.create_topic("orders"))
    assert ids[0] == ids[1]


def test_records_are_encoded_when_somebody_reads_them():
    with EmbeddedCluster(topics=["orders"]) as cluster:
        asyncio.run(use_groups(cluster.bootstrap_servers, "orders", "g"))
        partitions = cluster._state.topics[OFFSETS].partitions
        waiting = [each for each in partitions if each._waiting]
        assert waiting
        assert all(each._log.end_offset == 0 for each in partitions)
        assert len(cluster.records(OFFSETS)) > 10
        assert not any(each._waiting for each in partitions)


def test_many_records_are_encoded_although_nobody_reads_them():
    with EmbeddedCluster(configs={"offsets.topic.num.partitions": 1}) as cluster:

        def write_many():
            for number in range(10_001):
                key = b"%d" % number
                internal.write_records(OFFSETS, "g", lambda key=key: [(key, None)])

        internal = cluster._state.internal
        cluster._runner.call_in_loop(write_many)
        (partition,) = cluster._state.topics[OFFSETS].partitions
        assert isinstance(partition, InternalPartition)
        assert (partition._log.end_offset, len(partition._waiting)) == (10_000, 1)
        assert cluster.offsets(OFFSETS) == (0, 10_001)


async def test_a_consumer_follows_what_groups_commit():
    async with EmbeddedCluster(topics=["orders"]) as cluster:
        servers = cluster.bootstrap_servers
        async with Consumer(bootstrap_servers=servers, group_id="g") as member:
            await member.commit({TopicPartition("orders", 0): 1})
            async with Consumer(
                OFFSETS, bootstrap_servers=servers, auto_offset_reset="earliest"
            ) as reader:
                seen = []
                async for record in reader:
                    _, value = decode_record(record)
                    seen.append(value["offset"])
                    if len(seen) == 3:
                        break
                    await member.commit({TopicPartition("orders", 0): len(seen) + 1})
        assert seen == [1, 2, 3]


async def test_deleted_offsets_and_topics_leave_tombstones():
    async with EmbeddedCluster(topics={"orders": 2, "other": 1}) as cluster:
        servers = cluster.bootstrap_servers
        partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
        async with Admin(bootstrap_servers=servers) as admin:
            given = dict.fromkeys([*partitions, TopicPartition("other", 0)], 0)
            (await admin.alter_consumer_group_offsets("g", given)).raise_for_errors()
            (await admin.delete_consumer_group_offsets("g", partitions[:1])).raise_for_errors()
            (await admin.delete_topics(["orders"])).raise_for_errors()
            (await admin.delete_groups(["g"])).raise_for_errors()
        found = [
            (key.get("topic"), key.get("partition"), value is None)
            for key, value in decode_all(cluster, OFFSETS)
        ]
    written = [("orders", 0, False), ("orders", 1, False), ("other", 0, False)]
    gone = [("orders", 0, True), ("orders", 1, True), ("other", 0, True), (None, None, True)]
    assert found == written + gone


def test_a_forgotten_transactional_id_leaves_a_tombstone():
    async def use(servers):
        async with (
            Producer(bootstrap_servers=servers, transactional_id="id") as producer,
            producer.transaction(),
        ):
            await producer.send("orders", b"v")

    with EmbeddedCluster(topics=["orders"]) as cluster:

        def read_states():
            return [value and value["state"] for _, value in decode_all(cluster, TRANSACTIONS)]

        asyncio.run(use(cluster.bootstrap_servers))
        deadline = time.monotonic() + 30
        # The producer has its answer before the markers are written.
        while read_states()[-1] != "complete_commit":
            assert time.monotonic() < deadline
        cluster.forget_transactional_id("id")
        states = read_states()
    assert states == ["empty", "ongoing", "prepare_commit", "complete_commit", None]


def test_a_wiped_cluster_has_no_internal_topics():
    with EmbeddedCluster(topics=["orders"]) as cluster:
        asyncio.run(use_groups(cluster.bootstrap_servers, "orders", "g"))
        cluster.wipe()
        assert list(cluster._state.topics) == []
