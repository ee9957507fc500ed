"""Tests that the embedded cluster and a real Kafka answer raw admin requests alike.

Each scenario uses one broker and returns what it saw. Both results must be equal. The two
clusters may differ only in data that a scenario omits from its result. The requests are about
topics and the cluster.
"""

import time
import uuid

import pytest
from parity import Scenarios, named

from aiokclient.protocol import messages
from aiokclient.protocol.messages import create_partitions, create_topics, describe_configs
from aiokclient.protocol.messages import delete_records as deletion
from aiokclient.protocol.messages import incremental_alter_configs as incremental
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.metadata import MetadataRequestTopic

SCENARIOS = Scenarios()
scenario = SCENARIOS.add


@scenario
def metadata(broker):
    topic, topic_id = broker.topic(2)
    missing = uuid.uuid4()
    seen = []
    for version in (0, 1, 4, 8, 9, 10, 12, 13):
        asked = [MetadataRequestTopic(name=each) for each in (topic, "nothing", "a b")]
        if version >= 12:
            asked += [
                MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, missing)
            ]
        request = messages.MetadataRequest(topics=asked)
        request.allow_auto_topic_creation = version < 4
        response = broker.request(request, version)
        answers = {(each.name, each.topic_id): each for each in response.topics}
        seen.append(
            sorted(
                (
                    (name or "").replace(topic, "topic"),
                    found == topic_id,
                    found == missing,
                    named(each.error_code),
                    [
                        (p.partition_index, named(p.error_code), p.leader_epoch, p.isr_nodes)
                        for p in sorted(each.partitions, key=lambda p: p.partition_index)
                    ],
                )
                for (name, found), each in answers.items()
            )
        )
        seen.append(len(response.brokers))
    seen.append(broker.request(messages.MetadataRequest(topics=[])).topics)
    return seen


@scenario
def create_and_delete_topics(broker):
    taken, _ = broker.topic()

    def create(name, partitions=1, replication=1, configs=(), brokers=(), validate=False):
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[create_topics.CreatableTopicConfig(name=n, value=v) for n, v in configs],
            assignments=[
                create_topics.CreatableReplicaAssignment(partition_index=i, broker_ids=each)
                for i, each in enumerate(brokers)
            ],
        )
        request = messages.CreateTopicsRequest(topics=[topic], validate_only=validate)
        (result,) = broker.request(request).topics
        return named(result.error_code), result.num_partitions, result.replication_factor

    fresh = f"fresh-{uuid.uuid4().hex[:6]}"
    seen = [
        create(taken),
        create("a b"),
        create(".."),
        create("x" * 250),
        create(fresh, partitions=0),
        create(fresh, partitions=-2),
        create(fresh, replication=0),
        create(fresh, replication=5),
        create(fresh, configs=[("nonsense", "1")]),
        create(fresh, configs=[("retention.bytes", "much")]),
        create(fresh, brokers=[[1]]),
        create(fresh, -1, -1, brokers=[[9]]),
        create(fresh, -1, -1, brokers=[[1, 1]]),
        create(fresh, 3, validate=True),
        create(fresh, 3),
        create(fresh, 3),
        create(taken.replace("-", "_", 1)),
        create(f"{fresh}.of_a"),
        create(f"{fresh}_of.a"),
        create(f"{fresh}.{'_' * 7}"),
        create(f"{fresh}_{'.' * 7}"),
    ]

    def delete(**named_by):
        request = messages.DeleteTopicsRequest(
            topics=[DeleteTopicState(**named_by)], timeout_ms=60_000
        )
        (result,) = broker.request(request).responses
        return named(result.error_code)

    seen += [delete(name=f"{fresh}.of_a"), delete(name=f"{fresh}.{'_' * 7}")]
    seen += [delete(name=fresh), delete(name=fresh), delete(topic_id=uuid.uuid4())]
    seen.append(delete(name=taken, topic_id=uuid.uuid4()))
    return seen


@scenario
def create_partitions_and_delete_records(broker):
    topic, _ = broker.topic(2)

    def add(name, count, brokers=None):
        if brokers is not None:
            brokers = [create_partitions.CreatePartitionsAssignment(broker_ids=b) for b in brokers]
        wanted = create_partitions.CreatePartitionsTopic(
            name=name, count=count, assignments=brokers
        )
        (result,) = broker.request(
            messages.CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000)
        ).results
        return named(result.error_code)

    seen = [add(topic, 1), add(topic, 2), add(topic, 0), add("nothing", 3)]
    seen += [add(topic, 4, [[1]]), add(topic, 3, [[9]]), add(topic, 3, [[]]), add(topic, 3)]
    broker.produced(topic, b"a", b"b", b"c")
    for offset in (1, 0, 4, -1, -2):
        partition = deletion.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [deletion.DeleteRecordsTopic(name=topic, partitions=[partition])]
        answer = broker.request(messages.DeleteRecordsRequest(topics=topics, timeout_ms=60_000))
        (result,) = answer.topics[0].partitions
        seen.append((named(result.error_code), result.low_watermark))
    seen += [broker.fetched(topic, offset=each) for each in (0, 1, 3)]
    for policy in ("compact", "compact,delete", ""):
        kept, _ = broker.topic(cleanup_policy=policy)
        broker.produced(kept, b"v", key=b"k")
        for partition, offset in ((0, 9), (0, 1), (1, 1)):
            asked = deletion.DeleteRecordsPartition(partition_index=partition, offset=offset)
            topics = [deletion.DeleteRecordsTopic(name=kept, partitions=[asked])]
            answer = broker.request(messages.DeleteRecordsRequest(topics=topics, timeout_ms=60_000))
            (result,) = answer.topics[0].partitions
            seen.append((policy, named(result.error_code), result.low_watermark))
    return seen


@scenario
def configs(broker):
    topic, _ = broker.topic()

    def change(kind, name, *changes):
        wanted = [
            incremental.AlterableConfig(name=n, config_operation=operation, value=value)
            for n, operation, value in changes
        ]
        resource = incremental.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=wanted
        )
        request = messages.IncrementalAlterConfigsRequest(resources=[resource])
        return named(broker.request(request).responses[0].error_code)

    def describe(kind, name, *keys):
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
        )
        (result,) = broker.request(messages.DescribeConfigsRequest(resources=[resource])).results
        listed = [(c.name, c.value, c.config_source, c.config_type) for c in result.configs]
        return named(result.error_code), listed if keys else bool(listed)

    def described(keys, *expected):
        """Return the configs when the broker knows the change.

        The controller answers before the broker has learned it.
        """
        deadline = time.monotonic() + 20
        while True:
            answer = describe(2, topic, *keys)
            if {value for _, value, _, _ in answer[1]}.issuperset(expected):
                return answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.01)

    return [
        change(2, topic, ("retention.ms", 0, "5")),
        described(["retention.ms"], "5"),
        change(2, topic, ("nonsense", 0, "5")),
        change(2, topic, ("retention.ms", 0, "x")),
        change(2, topic, ("retention.ms", 2, "5")),
        change(2, topic, ("cleanup.policy", 2, "compact")),
        described(["cleanup.policy", "retention.ms", "nonsense"], "delete,compact", "5"),
        change(2, topic, ("retention.ms", 1, None)),
        change(2, "nothing", ("retention.ms", 0, "5")),
        change(99, topic, ("retention.ms", 0, "5")),
        describe(2, "nothing"),
        describe(4, "77"),
        describe(4, "1"),
        describe(99, "x"),
    ]


@scenario
def api_versions(broker):
    def ask(version=5, name="test", **fields):
        request = messages.ApiVersionsRequest(
            client_software_name=name, client_software_version="1", **fields
        )
        response = broker.request(request, version)
        return named(response.error_code), bool(response.api_keys)

    seen = [ask(version) for version in range(6)]
    seen += [ask(name="")]
    seen += [ask(name="-x"), ask(cluster_id="x"), ask(node_id=1), ask(cluster_id="x", node_id=1)]
    seen.append(ask(4))
    broker.connection.socket.sendall(bytes.fromhex("0000000b0012006300000000ffff00"))
    size = int.from_bytes(broker.connection._read(4), "big")
    answer = messages.ApiVersionsResponse.decode(broker.connection._read(size)[4:], 0)
    own = [(each.api_key, each.min_version, each.max_version) for each in answer.api_keys]
    return [*seen, named(answer.error_code), own]


@scenario
def coordinators_and_clusters(broker):
    def find(kind, key="a", version=6):
        request = messages.FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
        (found,) = broker.request(request, version).coordinators
        return named(found.error_code)

    for kind in (0, 1):
        deadline = time.monotonic() + 20
        while find(kind) != "ok":
            assert time.monotonic() < deadline
    seen = [find(0), find(1)]
    for endpoint in (1, 2, 3):
        request = messages.DescribeClusterRequest(endpoint_type=endpoint)
        response = broker.request(request)
        seen.append((named(response.error_code), len(response.brokers)))
    for fields in ({"producer_epoch": 1}, {"producer_id": 1}, {}):
        request = messages.InitProducerIdRequest(transactional_id=None, **fields)
        response = broker.request(request, 5)
        seen.append((named(response.error_code), response.producer_epoch))
    return seen


@scenario
def what_is_no_request(broker):
    def closes(data):
        connection = broker.again()
        connection.socket.sendall(data)
        return connection.closed()

    return [
        closes(b"\xff\xff\xff\xff"),
        closes(b"GET / HTTP/1.1\r\n\r\n"),
        closes(bytes.fromhex("0000000a03e7000000000000ffff")),
        closes(bytes.fromhex("0000000a0003006300000000ffff")),
    ]


@scenario
def later_requests_wait_while_a_fetch_is_held(broker):
    topic, topic_id = broker.topic()
    waiting = broker.again()
    waiting.send(broker.wire.fetch_request(topic_id, wait_ms=300))
    waiting.send(messages.MetadataRequest(topics=[]))
    broker.produced(topic, b"v")
    first, second = waiting.receive(), waiting.receive()
    return type(first).__name__, type(second).__name__


@pytest.mark.parametrize("name", SCENARIOS)
def test_admin_requests_are_answered_as_by_kafka(name, parity):
    parity(SCENARIOS[name])
