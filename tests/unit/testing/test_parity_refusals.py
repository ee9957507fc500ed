"""Tests of fields that change a response, and of unsupported requests, as in a real Kafka.

The scenarios run on the embedded cluster and on a real Kafka. After them, there are tests of
requests that Kafka supports but the embedded cluster does not.
"""

import pytest
from parity import Scenarios, named

from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.messages import fetch as fetching
from aiokclient.protocol.messages import metadata as metadata_
from aiokclient.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from aiokclient.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokclient.record.batch import Compression, walk
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.handlers import list_handled

SCENARIOS = Scenarios()
scenario = SCENARIOS.add
NO_SUCH = "nothing-of-this-name"


@scenario
def transactional_batches(broker):
    topic, _ = broker.topic(2)
    plain = broker.wire.batch(b"a")
    transactional = broker.wire.batch(b"a", producer=(5, 0, 0), transactional=True)

    def produce(transactional_id, *batches, acks=-1, version=12):
        data = [
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=index, records=batch)
                    for index, batch in enumerate(batches)
                ],
            ),
            TopicProduceData(
                name=NO_SUCH, partition_data=[PartitionProduceData(index=0, records=plain)]
            ),
        ]
        request = messages.ProduceRequest(
            transactional_id=transactional_id, acks=acks, timeout_ms=5_000, topic_data=data
        )
        if not acks:
            connection = broker.again()
            connection.send(request, version, expect=False)
            return connection.closed()
        return sorted(
            (each.name == topic, part.index, named(part.error_code), part.base_offset)
            for each in broker.request(request, version).responses
            for part in each.partition_responses
        )

    return [
        produce(None, plain, transactional),
        produce(None, transactional, plain, plain),
        produce(None, transactional, acks=0),
        produce("t", plain, transactional),
        produce("t", plain, transactional, version=11),
        produce("", plain, transactional),
        produce("t", plain, plain),
    ]


@scenario
def isolation_levels(broker):
    topic, _ = broker.topic()
    broker.produced(topic, b"a")

    def fetch(version, level, session):
        request = broker.wire.fetch_request(topic, session=session)
        request.isolation_level = level
        response = broker.request(request, version)
        parts = [
            (named(part.error_code), part.high_watermark, bool(part.records))
            for each in response.responses
            for part in each.partitions
        ]
        return named(response.error_code), bool(response.session_id), parts

    def list_offsets(level, name):
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        topics = [ListOffsetsTopic(name=name, partitions=[asked])]
        request = messages.ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
        (part,) = broker.request(request, 7).topics[0].partitions
        return named(part.error_code), part.offset

    seen = [
        fetch(version, level, session)
        for version, session in ((4, (0, -1)), (12, (0, -1)), (12, (0, 0)))
        for level in (-1, 0, 1, 2)
    ]
    seen.append(fetch(12, 2, (1 << 30, 4)))
    seen += [list_offsets(level, topic) for level in (-1, 0, 1, 2)]
    return [*seen, list_offsets(2, NO_SUCH)]


@scenario
def fetches_of_replicas(broker):
    topic, topic_id = broker.topic()
    broker.produced(topic, b"a")

    def fetch(version, replica, name=topic):
        request = broker.wire.fetch_request(topic_id if version >= 13 else name)
        if version >= 15:
            request.replica_state = fetching.ReplicaState(replica_id=replica, replica_epoch=-1)
        else:
            request.replica_id = replica
        response = broker.request(request, version)
        (part,) = response.responses[0].partitions
        code = named(part.error_code)
        return named(response.error_code), code, part.high_watermark, bool(part.records)

    seen = [fetch(version, each) for version in (4, 11, 14, 15, 17) for each in (-1, 0, 77)]
    return [*seen, fetch(12, 77, NO_SUCH), fetch(12, -2), fetch(12, -3)]


@scenario
def stored_codecs(broker):
    codecs = list(Compression)
    seen = []
    for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
        topic, _ = broker.topic(compression_type=name)
        for codec in codecs:
            batch = broker.wire.batch(b"a" * 300, b"b" * 300, None, compression=codec)
            seen.append(broker.connection.produce(topic, batch).base_offset)
        producer = broker.wire.batch(b"c" * 300, producer=(7, 0, 0))
        seen += [broker.connection.produce(topic, producer).base_offset for _ in range(2)]
        records = broker.connection.fetch(topic).records
        for each in walk(records):
            assert each.check_crc()
            header = each.compression, each.base_offset, each.last_offset, each.count
            seen.append((*header, each.max_timestamp, each.producer_id, each.base_sequence))
        seen.append(broker.wire.values(broker.connection.fetch(topic)))
    return seen


@scenario
def repeated_parts(broker):
    """Name a topic or a partition more than once in a request."""
    topic, topic_id = broker.topic(2)

    def metadata(version, *names, **fields):
        topics = [metadata_.MetadataRequestTopic(name=name, **fields) for name in names]
        response = broker.request(messages.MetadataRequest(topics=topics), version)
        return sorted((each.name == topic, named(each.error_code)) for each in response.topics)

    def list_offsets(*indexes):
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=each, timestamp=-1, current_leader_epoch=-1
                    )
                ],
            )
            for each in indexes
        ]
        response = broker.request(messages.ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        return [
            (len(each.partitions), part.partition_index, named(part.error_code), part.offset)
            for each in response.topics
            for part in sorted(each.partitions, key=lambda part: part.partition_index)
        ]

    def produce(*indexes):
        data = [
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=each, records=broker.wire.batch(b"%d" % number))
                ],
            )
            for number, each in enumerate(indexes)
        ]
        request = messages.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=data)
        return sorted(
            (part.index, named(part.error_code), part.base_offset)
            for each in broker.request(request, 12).responses
            for part in each.partition_responses
        )

    seen = [metadata(version, topic, topic, NO_SUCH, NO_SUCH) for version in (1, 9, 13)]
    seen.append(metadata(12, None, None, topic_id=topic_id))
    seen += [produce(0, 0, 1, 0), list_offsets(0, 0), list_offsets(0, 1), list_offsets(0, 1, 0)]
    return [*seen, *(broker.wire.values(broker.connection.fetch(topic)) for _ in range(2))]


@scenario
def operations_on_consumer_groups(broker):
    topic, _ = broker.topic()
    group = f"{topic}-group"
    request = messages.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    while broker.request(request, 1).error_code:
        pass

    def describe(name, operations):
        request = messages.ConsumerGroupDescribeRequest(
            group_ids=[name], include_authorized_operations=operations
        )
        (found,) = broker.request(request, 1).groups
        return named(found.error_code), found.authorized_operations

    seen = [describe(name, each) for name in (group, f"{topic}-none") for each in (True, False)]
    request.member_epoch = -1
    assert broker.request(request, 1).error_code == 0
    return seen


@scenario
def features(broker):
    """Return the features that both clusters have, as each version of the response reports them."""
    seen = []
    for version in range(6):
        request = messages.ApiVersionsRequest(
            client_software_name="test", client_software_version="1"
        )
        response = broker.request(request, version)
        wanted = ("eligible.leader.replicas.version", "group.version", "metadata.version")
        supported = {
            each.name: (each.min_version, each.max_version)
            for each in response.supported_features
            if each.name in wanted
        }
        finalized = {
            each.name: (each.min_version_level, each.max_version_level)
            for each in response.finalized_features
            if each.name in wanted
        }
        seen.append((supported, finalized, response.finalized_features_epoch >= 0))
    return seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_refusals_are_those_of_kafka(name, parity):
    parity(SCENARIOS[name])


# -- what Kafka supports, but not the embedded cluster -------------------------------------


def test_only_supported_features_are_announced(cluster, wire):
    response = wire.to(1).request(
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4
    )
    names = [each.name for each in response.supported_features]
    assert sorted(names) == [
        "eligible.leader.replicas.version",
        "group.version",
        "metadata.version",
        "share.version",
        "transaction.version",
    ]
    assert sorted(each.name for each in response.finalized_features) == sorted(names)
    assert ApiKey.STREAMS_GROUP_HEARTBEAT not in list_handled()


def test_group_version_is_not_announced_without_its_requests(cluster, wire):
    cluster.limit_versions({ApiKey.CONSUMER_GROUP_HEARTBEAT: None})
    response = wire.to(1).request(
        messages.ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4
    )
    names = [each.name for each in response.finalized_features]
    assert names == [
        "metadata.version",
        "eligible.leader.replicas.version",
        "transaction.version",
        "share.version",
    ]


def test_clients_may_not_write_to_internal_topics(cluster, wire):
    cluster.create_topic("__consumer_offsets")
    connection = wire.leader("__consumer_offsets")
    batch = wire.batch(b"v")
    refused = connection.produce("__consumer_offsets", batch).error_code
    assert named(refused) == "INVALID_TOPIC_EXCEPTION"


@pytest.mark.parametrize("unclean", ["true", "false"])
def test_a_replica_out_of_sync_leads_when_unclean_elections_are_allowed(unclean):
    configs = {"unclean.leader.election.enable": unclean}
    with EmbeddedCluster(2) as cluster:
        cluster.create_topic("orders", configs=configs)
        leader = cluster.leader("orders")
        (follower,) = {1, 2} - {leader}
        cluster.produce("orders", [b"kept"])
        with cluster.hold_replication("orders", in_sync=False):
            cluster.produce("orders", [b"lost"])
            cluster.stop(leader)
        found = [each.value for each in cluster.records("orders")]
        if unclean == "true":
            assert (cluster.leader("orders"), found) == (follower, [b"kept"])
        else:
            assert (cluster.leader("orders"), found) == (-1, [b"kept", b"lost"])
