"""Tests of metadata requests and of admin requests."""

import uuid

import pytest

from aiokclient import errors
from aiokclient.protocol import messages
from aiokclient.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    describe_configs,
    describe_topic_partitions,
)
from aiokclient.protocol.messages import delete_records as deletion
from aiokclient.protocol.messages import incremental_alter_configs as incremental
from aiokclient.protocol.messages.delete_topics import DeleteTopicState
from aiokclient.protocol.messages.metadata import MetadataRequestTopic
from aiokclient.testing import EmbeddedCluster

TOPIC, BROKER = 2, 4


@pytest.fixture
def broker(wire):
    return wire.to(2)


def metadata(connection, *names, version=None, auto=False):
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    if version == 0 and topics is None:
        topics = []
    auto = auto or (version is not None and version < 4)
    request = messages.MetadataRequest(topics=topics, allow_auto_topic_creation=auto)
    return connection.request(request, version)


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_of_metadata_is_answered(self, cluster, broker, version):
        response = metadata(broker, version=version)
        addresses = [(each.node_id, (each.host, each.port)) for each in response.brokers]
        assert addresses == [(node, cluster.address(node)) for node in (1, 2, 3)]
        (topic,) = response.topics
        assert (topic.name, topic.error_code) == ("orders", 0)
        assert [each.leader_id for each in topic.partitions] == [1, 2, 3]
        assert all(sorted(each.isr_nodes) == [1, 2, 3] for each in topic.partitions)
        if version >= 10:
            assert topic.topic_id == cluster.topic_id("orders")
        if version >= 2:
            assert response.cluster_id == cluster.cluster_id

    def test_metadata_is_returned_by_topic_id(self, cluster, broker):
        known, unknown = cluster.topic_id("orders"), uuid.uuid4()
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (known, unknown)]
        response = broker.request(messages.MetadataRequest(topics=topics))
        assert [each.name for each in response.topics] == ["orders", None]
        codes = [each.error_code for each in response.topics]
        assert codes == [0, errors.UnknownTopicIdError.code]

    def test_metadata_of_missing_topics_is_an_error(self, broker):
        response = metadata(broker, "nothing", "a/b")
        unknown, invalid = errors.UnknownTopicOrPartitionError.code, errors.InvalidTopicError.code
        assert [each.error_code for each in response.topics] == [unknown, invalid]
        assert metadata(broker, "nothing", auto=True).topics[0].error_code == unknown

    def test_topics_are_created_on_demand(self, wire_to):
        with EmbeddedCluster(1, auto_create_topics=True) as cluster:
            broker = wire_to(cluster).to(1)
            refused = metadata(broker, "new").topics[0].error_code
            assert refused == errors.UnknownTopicOrPartitionError.code
            first = metadata(broker, "new", auto=True).topics[0].error_code
            assert first == errors.UnknownTopicOrPartitionError.code
            assert metadata(broker, "new").topics[0].error_code == 0

    def test_metadata_omits_a_stopped_broker(self, cluster, broker):
        cluster.create_topic("alone", 3, replication=1)
        cluster.stop(1)
        response = metadata(broker)
        assert [each.node_id for each in response.brokers] == [2, 3]
        assert response.controller_id == 2
        orders, alone = response.topics
        assert [each.leader_id for each in orders.partitions] == [2, 2, 3]
        assert [each.offline_replicas for each in orders.partitions] == [[1]] * 3
        assert [each.leader_epoch for each in orders.partitions] == [1, 0, 0]
        missing = alone.partitions[0]
        assert missing.error_code == errors.LeaderNotAvailableError.code
        assert (missing.leader_id, missing.isr_nodes) == (-1, [1])
        cluster.start(1)
        orders, alone = metadata(broker).topics
        assert [each.leader_id for each in alone.partitions] == [1, 2, 3]
        assert alone.partitions[0].leader_epoch == 2
        assert [each.leader_id for each in orders.partitions] == [2, 2, 3]


def create(connection, *topics, version=None, validate=False):
    request = messages.CreateTopicsRequest(topics=list(topics), validate_only=validate)
    return connection.request(request, version).topics


def new_topic(name="new", partitions=2, replication=2, configs=(), assignments=()):
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication,
        configs=[create_topics.CreatableTopicConfig(name=n, value=v) for n, v in configs],
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in enumerate(assignments)
        ],
    )


class TestCreateTopics:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version_of_create_topics_is_answered(self, cluster, broker, version):
        configs = [("retention.bytes", "1000")]
        (result,) = create(broker, new_topic(configs=configs), version=version)
        assert result.error_code == 0
        assert cluster.topics["new"] == 2
        assert len(cluster.replicas("new", 1)) == 2
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 2)
            assert {each.name: each.value for each in result.configs}["retention.bytes"] == "1000"
        if version >= 7:
            assert result.topic_id == cluster.topic_id("new")

    @pytest.mark.parametrize(
        ("topic", "error"),
        [
            (new_topic("orders"), errors.TopicExistsError),
            (new_topic("a b"), errors.InvalidTopicError),
            (new_topic(".."), errors.InvalidTopicError),
            (new_topic("x" * 250), errors.InvalidTopicError),
            (new_topic(partitions=0), errors.InvalidPartitionsError),
            (new_topic(replication=4), errors.InvalidReplicationFactorError),
            (new_topic(replication=0), errors.InvalidReplicationFactorError),
            (new_topic(configs=[("nonsense", "1")]), errors.InvalidConfigError),
            (new_topic(configs=[("retention.bytes", "much")]), errors.InvalidConfigError),
            (new_topic(assignments=[[1]]), errors.InvalidRequestError),
            (new_topic("n", -1, -1, assignments=[[9]]), errors.InvalidReplicaAssignmentError),
            (new_topic("n", -1, -1, assignments=[[1, 1]]), errors.InvalidReplicaAssignmentError),
            (
                new_topic("n", -1, -1, assignments=[[1], [2, 3]]),
                errors.InvalidReplicaAssignmentError,
            ),
        ],
    )
    def test_the_embedded_broker_refuses_invalid_topics(self, cluster, broker, topic, error):
        (result,) = create(broker, topic)
        assert result.error_code == error.code
        assert result.error_message
        assert list(cluster.topics) == ["orders"]

    def test_create_topics_creates_the_valid_one_of_two(self, cluster, broker):
        good, twice = new_topic("good"), new_topic("twice")
        results = create(broker, good, twice, twice)
        answers = {each.name: (each.error_code, each.error_message) for each in results}
        twice_code = errors.InvalidRequestError.code
        assert answers == {"good": (0, None), "twice": (twice_code, "Duplicate topic name.")}
        assert "good" in cluster.topics
        assert "twice" not in cluster.topics

    def test_the_embedded_broker_creates_nothing_for_a_validation(self, cluster, broker):
        (result,) = create(broker, new_topic(), validate=True)
        assert (result.error_code, result.num_partitions) == (0, 2)
        (result,) = create(broker, new_topic("orders"), validate=True)
        assert result.error_code == errors.TopicExistsError.code
        assert "new" not in cluster.topics

    def test_create_topics_applies_defaults_and_assignments(self, cluster, broker):
        create(broker, new_topic("plain", -1, -1))
        assert cluster.topics["plain"] == 1
        assert len(cluster.replicas("plain", 0)) == 3
        create(broker, new_topic("placed", -1, -1, assignments=[[3, 1], [2, 3]]))
        assert [cluster.replicas("placed", each) for each in (0, 1)] == [[3, 1], [2, 3]]
        assert cluster.leader("placed", 0) == 3


class TestDeleteTopics:
    def test_topics_are_deleted_by_name_and_by_id(self, cluster, broker):
        (result,) = broker.request(
            messages.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=60_000), 5
        ).responses
        assert (result.name, result.error_code) == ("orders", 0)
        (result,) = broker.request(
            messages.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=60_000), 5
        ).responses
        assert result.error_code == errors.UnknownTopicOrPartitionError.code
        cluster.create_topic("again")
        states = [
            DeleteTopicState(name=None, topic_id=cluster.topic_id("again")),
            DeleteTopicState(name=None, topic_id=uuid.uuid4()),
            DeleteTopicState(name="nothing"),
        ]
        response = broker.request(messages.DeleteTopicsRequest(topics=states, timeout_ms=60_000))
        assert [each.error_code for each in response.responses] == [
            0,
            errors.UnknownTopicIdError.code,
            errors.UnknownTopicOrPartitionError.code,
        ]
        assert cluster.topics == {}


class TestCreatePartitions:
    def add(self, connection, name, count, assignments=None, validate=False):
        if assignments is not None:
            assignments = [
                create_partitions.CreatePartitionsAssignment(broker_ids=each)
                for each in assignments
            ]
        topic = create_partitions.CreatePartitionsTopic(
            name=name, count=count, assignments=assignments
        )
        request = messages.CreatePartitionsRequest(
            topics=[topic], timeout_ms=60_000, validate_only=validate
        )
        return connection.request(request).results[0].error_code

    def test_create_partitions_adds_partitions(self, cluster, broker):
        assert self.add(broker, "orders", 5, validate=True) == 0
        assert cluster.topics["orders"] == 3
        assert self.add(broker, "orders", 5) == 0
        assert cluster.topics["orders"] == 5
        assert self.add(broker, "orders", 6, [[3, 2, 1]]) == 0
        assert cluster.leader("orders", 5) == 3

    def test_create_partitions_refuses_invalid_counts(self, broker):
        assert self.add(broker, "orders", 3) == errors.InvalidPartitionsError.code
        assert self.add(broker, "nothing", 3) == errors.UnknownTopicOrPartitionError.code
        bad = errors.InvalidReplicaAssignmentError.code
        assert self.add(broker, "orders", 4, [[1], [2]]) == bad
        assert self.add(broker, "orders", 4, [[7]]) == bad


def test_delete_records_moves_the_log_start_offset(cluster, wire):
    cluster.produce("orders", [b"v"] * 5)

    def delete(connection, offset, topic="orders"):
        partition = deletion.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [deletion.DeleteRecordsTopic(name=topic, partitions=[partition])]
        answer = connection.request(messages.DeleteRecordsRequest(topics=topics))
        (result,) = answer.topics[0].partitions
        return result.error_code, result.low_watermark

    leader = wire.leader()
    assert delete(leader, 2) == (0, 2)
    assert delete(leader, 1) == (0, 2)
    assert [each.offset for each in cluster.records("orders", 0)] == [2, 3, 4]
    assert delete(leader, 6) == (errors.OffsetOutOfRangeError.code, -1)
    assert delete(wire.follower(), 3)[0] == errors.NotLeaderOrFollowerError.code
    assert delete(leader, 3, "nothing")[0] == errors.UnknownTopicOrPartitionError.code
    assert delete(leader, -1) == (0, 5)


class TestConfigs:
    def describe(self, connection, kind, name, keys=None, synonyms=False):
        resource = describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=keys
        )
        request = messages.DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms)
        (result,) = connection.request(request).results
        return result

    def values(self, *arguments):
        return {each.name: each.value for each in self.describe(*arguments).configs}

    def change(self, connection, kind, name, *changes, validate=False):
        configs = [
            incremental.AlterableConfig(name=n, config_operation=operation, value=value)
            for n, operation, value in changes
        ]
        resource = incremental.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=configs
        )
        request = messages.IncrementalAlterConfigsRequest(
            resources=[resource], validate_only=validate
        )
        return connection.request(request).responses[0].error_code

    def test_configs_of_a_topic_are_read_and_changed(self, broker):
        values = self.values(broker, TOPIC, "orders")
        assert values["cleanup.policy"] == "delete"
        assert self.change(broker, TOPIC, "orders", ("retention.ms", 0, "5"), validate=True) == 0
        assert self.values(broker, TOPIC, "orders") == values
        assert self.change(broker, TOPIC, "orders", ("retention.ms", 0, "5")) == 0
        (only,) = self.describe(broker, TOPIC, "orders", ["retention.ms"], True).configs
        assert (only.value, only.config_source, only.config_type) == ("5", 1, 5)
        assert [(each.value, each.source) for each in only.synonyms] == [
            ("5", 1),
            ("604800000", 5),
        ]
        assert self.change(broker, TOPIC, "orders", ("retention.ms", 1, None)) == 0
        assert self.values(broker, TOPIC, "orders") == values

    def test_list_configs_are_appended_to_and_subtracted_from(self, broker):
        assert self.change(broker, TOPIC, "orders", ("cleanup.policy", 2, "compact")) == 0
        assert self.values(broker, TOPIC, "orders")["cleanup.policy"] == "delete,compact"
        assert self.change(broker, TOPIC, "orders", ("cleanup.policy", 3, "delete")) == 0
        assert self.values(broker, TOPIC, "orders")["cleanup.policy"] == "compact"

    def test_configs_of_brokers_apply_to_topics(self, broker):
        assert self.change(broker, BROKER, "", ("message.max.bytes", 0, "777")) == 0
        (only,) = self.describe(broker, TOPIC, "orders", ["max.message.bytes"], True).configs
        assert (only.value, only.config_source) == ("777", 3)
        assert [each.name for each in only.synonyms] == ["message.max.bytes"] * 2
        assert self.values(broker, BROKER, "1")["message.max.bytes"] == "777"
        assert self.change(broker, BROKER, "1", ("message.max.bytes", 0, "888")) == 0
        assert self.values(broker, BROKER, "1")["message.max.bytes"] == "888"
        assert self.values(broker, BROKER, "2")["message.max.bytes"] == "777"

    def test_alter_configs_replaces_all_values(self, broker):
        self.change(broker, TOPIC, "orders", ("retention.ms", 0, "5"), ("segment.ms", 0, "6"))
        configs = [alter_configs.AlterableConfig(name="retention.ms", value="7")]
        resource = alter_configs.AlterConfigsResource(
            resource_type=TOPIC, resource_name="orders", configs=configs
        )
        response = broker.request(messages.AlterConfigsRequest(resources=[resource]))
        assert response.responses[0].error_code == 0
        values = self.values(broker, TOPIC, "orders")
        assert (values["retention.ms"], values["segment.ms"]) == ("7", "604800000")

    def test_invalid_configs_are_refused(self, broker):
        bad, invalid = errors.InvalidConfigError.code, errors.InvalidRequestError.code
        unknown = errors.UnknownTopicOrPartitionError.code
        for change in (("nonsense", 0, "1"), ("retention.ms", 0, "x"), ("retention.ms", 2, "1")):
            assert self.change(broker, TOPIC, "orders", ("segment.ms", 0, "9"), change) == bad
        assert self.values(broker, TOPIC, "orders")["segment.ms"] == "604800000"
        assert self.change(broker, TOPIC, "nothing") == unknown
        assert self.describe(broker, TOPIC, "nothing").error_code == unknown
        assert self.describe(broker, BROKER, "9").error_code == invalid
        assert self.describe(broker, 99, "x").error_code == invalid


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_shows_stopped_brokers_as_fenced_on_request(cluster, broker, version):
    cluster.stop(3)
    fenced = version >= 2
    request = messages.DescribeClusterRequest(include_fenced_brokers=fenced)
    response = broker.request(request, version)
    assert (response.cluster_id, response.controller_id) == (cluster.cluster_id, 1)
    described = [(each.broker_id, each.is_fenced) for each in response.brokers]
    assert described == [(1, False), (2, False)] + ([(3, True)] if fenced else [])
    if version >= 1:
        response = broker.request(messages.DescribeClusterRequest(endpoint_type=2), version)
        assert response.error_code == errors.MismatchedEndpointTypeError.code


def test_describe_topic_partitions_returns_pages(cluster, broker):
    cluster.create_topic("a", 2)
    cluster.create_topic("z", 1)
    pages, cursor = [], None
    while not pages or cursor is not None:
        request = messages.DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        response = broker.request(request)
        pages.append([(t.name, p.partition_index) for t in response.topics for p in t.partitions])
        cursor = response.next_cursor
    assert pages == [
        [("a", 0), ("a", 1)],
        [("orders", 0), ("orders", 1)],
        [("orders", 2), ("z", 0)],
    ]
    asked = [describe_topic_partitions.TopicRequest(name="nothing")]
    response = broker.request(messages.DescribeTopicPartitionsRequest(topics=asked))
    unknown = errors.UnknownTopicOrPartitionError.code
    assert [each.error_code for each in response.topics] == [unknown]
    assert (
        response.topics[0].topic_authorized_operations
        == sum(1 << bit for bit in range(3, 9)) | 3 << 10
    )


class TestFindCoordinator:
    @pytest.mark.parametrize("version", range(7))
    def test_the_coordinator_is_one_of_the_brokers(self, cluster, broker, version):
        if version >= 4:
            request = messages.FindCoordinatorRequest(coordinator_keys=["a", "b", "c", "d"])
            found = broker.request(request, version).coordinators
            assert [each.key for each in found] == ["a", "b", "c", "d"]
        else:
            found = [broker.request(messages.FindCoordinatorRequest(key="a"), version)]
        for each in found:
            assert each.error_code == 0
            assert (each.host, each.port) == cluster.address(each.node_id)
        assert found[0].node_id == cluster.coordinator("a")

    def test_move_coordinator_changes_the_coordinator(self, cluster, broker):
        def find():
            request = messages.FindCoordinatorRequest(coordinator_keys=["a"])
            return broker.request(request).coordinators[0].node_id

        before = find()
        assert cluster.move_coordinator("a", 2) == find() == 2
        moved = cluster.move_coordinator("a")
        assert find() == moved != 2
        if moved != 2:
            cluster.stop(moved)
        assert find() in cluster.brokers
        assert before in cluster.brokers

    def test_unknown_coordinator_types_are_refused(self, broker):
        def find(key, version=6):
            request = messages.FindCoordinatorRequest(coordinator_keys=[key], key_type=2)
            return broker.request(request, version).coordinators[0].error_code

        share = f"group:{uuid.uuid4()}:0"
        assert find(share) == 0
        invalid = errors.InvalidRequestError.code
        assert [find(share, 5), find("a"), find("a:b:c"), find(":b:0")] == [invalid] * 4


class TestInitProducerId:
    def init(self, connection, version=None, **fields):
        fields.setdefault("transaction_timeout_ms", 1000)
        response = connection.request(messages.InitProducerIdRequest(**fields), version)
        return response.error_code, response.producer_id, response.producer_epoch

    @pytest.mark.parametrize("version", range(6))
    def test_producer_ids_are_new(self, broker, version):
        first, second = (self.init(broker, version, transactional_id=None) for _ in range(2))
        assert first[0] == second[0] == 0
        assert first[1] != second[1]
        assert first[2] == second[2] == 0

    def test_a_producer_id_without_an_epoch_is_refused(self, broker):
        invalid = errors.InvalidRequestError.code
        assert self.init(broker, transactional_id=None, producer_epoch=1)[0] == invalid
