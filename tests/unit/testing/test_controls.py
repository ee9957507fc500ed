"""Tests of what a test can do to the cluster: faults, brokers, leaders, and records."""

import asyncio
import threading

import pytest

from aiokclient import AnyBroker, Client, Producer, errors
from aiokclient.protocol import ApiKey, messages
from aiokclient.protocol.api import request_class
from aiokclient.protocol.messages import (
    alter_client_quotas,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_producers,
    describe_share_group_offsets,
    offset_fetch,
    write_txn_markers,
)
from aiokclient.protocol.schema import Struct
from aiokclient.testing import EmbeddedCluster
from aiokclient.testing.broker.handlers import list_handled
from aiokclient.types import ProducerRecord

METADATA = messages.MetadataRequest(topics=[])
TOPIC = write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
ANY_ACL = {"resource_type": 2, "operation": 3, "permission_type": 3}
ITEMS = {
    ApiKey.WRITE_TXN_MARKERS: ("markers", [write_txn_markers.WritableTxnMarker(topics=[TOPIC])]),
    ApiKey.DESCRIBE_PRODUCERS: (
        "topics",
        [describe_producers.TopicRequest(name="orders", partition_indexes=[0])],
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (
        "dirs",
        [
            alter_replica_log_dirs.AlterReplicaLogDir(
                path="/",
                topics=[
                    alter_replica_log_dirs.AlterReplicaLogDirTopic(name="orders", partitions=[0])
                ],
            )
        ],
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: ("transactional_ids", ["t"]),
    ApiKey.OFFSET_FETCH: ("groups", [offset_fetch.OffsetFetchRequestGroup(group_id="g")]),
    ApiKey.DESCRIBE_GROUPS: ("groups", ["g"]),
    ApiKey.DELETE_GROUPS: ("groups_names", ["g"]),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids", ["g"]),
    ApiKey.SHARE_GROUP_DESCRIBE: ("group_ids", ["g"]),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        "groups",
        [describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g")],
    ),
    ApiKey.SHARE_FETCH: ("topics", []),
    ApiKey.SHARE_ACKNOWLEDGE: ("topics", []),
    ApiKey.CREATE_ACLS: ("creations", [create_acls.AclCreation(**ANY_ACL)]),
    ApiKey.DELETE_ACLS: (
        "filters",
        [delete_acls.DeleteAclsFilter(resource_type_filter=1, operation=1, permission_type=1)],
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: ("entries", [alter_client_quotas.EntryData()]),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
        "deletions",
        [alter_user_scram_credentials.ScramCredentialDeletion(name="alice", mechanism=1)],
    ),
}


def error_codes(value):
    """Return all error codes in a response."""
    if isinstance(value, list):
        return [code for each in value for code in error_codes(each)]
    found = [value.error_code] if hasattr(value, "error_code") else []
    for field in getattr(value, "_fields", ()):
        inner = getattr(value, field.name)
        if isinstance(inner, list) or hasattr(inner, "_fields"):
            found += error_codes(inner)
    return found


def sample(api):
    """Return a request of this API, for the topic orders if the API has topics."""
    request = request_class(api)()
    fields = {field.name: field for field in request._fields}
    topics = next((each for each in ("topics", "topic_data", "resources") if each in fields), None)
    if api == ApiKey.PRODUCE:
        request.acks = 1
    if api == ApiKey.API_VERSIONS:
        request.client_software_name = request.client_software_version = "x"
    elif api == ApiKey.FIND_COORDINATOR:
        request.coordinator_keys = ["group"]
    elif api in ITEMS:
        setattr(request, *ITEMS[api])
    elif topics is not None:
        (item,) = [fields[topics].element()]
        name = next(
            each for each in ("name", "topic", "topic_name", "resource_name") if hasattr(item, each)
        )
        setattr(item, name, "orders")
        for partitions in ("partitions", "partition_data"):
            if hasattr(item, partitions):
                inner = next(each for each in item._fields if each.name == partitions)
                made = inner.element()
                getattr(item, partitions).append(made if isinstance(made, Struct) else 0)
        setattr(request, topics, [item])
    return request


async def send(cluster, *values, **options):
    """Send the values to the first partition of "orders".

    Wait for each acknowledgement before the next.
    """
    options = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **options}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        return [await producer.send("orders", value, partition=0) for value in values]


async def reach(cluster, broker):
    """Open a connection to a broker, and close it."""
    _, writer = await asyncio.open_connection(*cluster.address(broker))
    writer.close()
    await writer.wait_closed()


class TestFail:
    @pytest.mark.parametrize("api", list_handled())
    def test_every_api_can_be_refused(self, cluster, wire, api):
        request, error = sample(api), errors.ThrottlingQuotaExceededError
        version = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}.get(api, request.max_version)
        if api == ApiKey.INIT_PRODUCER_ID:
            version = 5
        with cluster.fail(api, error) as fault:
            response = wire.leader().request(request, version)
            assert error.code in error_codes(response), response
        assert fault.hits == 1
        assert error.code not in error_codes(wire.leader().request(request, version))

    def test_a_refusal_applies_the_given_number_of_times(self, cluster, wire):
        leader, batch = wire.leader(), wire.batch(b"v")
        fault = cluster.fail(ApiKey.PRODUCE, errors.NotLeaderOrFollowerError, times=2)
        codes = [leader.produce("orders", batch).error_code for _ in range(3)]
        assert codes == [6, 6, 0]
        assert fault.hits == 2
        assert len(cluster.records("orders", 0)) == 1

    def test_a_refused_produce_names_the_leader(self, cluster, wire):
        with cluster.fail(ApiKey.PRODUCE, errors.NotLeaderOrFollowerError):
            answer = wire.leader().produce("orders", wire.batch(b"v"))
        assert answer.current_leader.leader_id == cluster.leader("orders", 0)

    def test_one_partition_of_a_request_can_be_refused(self, cluster, wire):
        cluster.move_leader("orders", 1, to=1)
        connection = wire.to(1)
        request = wire.fetch_request("orders", partitions=[0, 1])
        with cluster.fail(ApiKey.FETCH, 74, topic="orders", partition=1):
            partitions = connection.request(request, 12).responses[0].partitions
            assert [each.error_code for each in partitions] == [0, 74]
        with cluster.fail(ApiKey.FETCH, 74, topic="another"):
            partitions = connection.request(request, 12).responses[0].partitions
            assert [each.error_code for each in partitions] == [0, 0]

    def test_a_refusal_may_be_limited_to_a_broker_and_some_requests(self, cluster, wire):
        def large(request):
            return len(request.topic_data[0].partition_data[0].records) > 1000

        small, big = wire.batch(b"v"), wire.batch(bytes(2000))
        cluster.fail(ApiKey.PRODUCE, errors.RecordTooLargeError, broker=1, where=large)
        assert wire.leader().produce("orders", small).error_code == 0
        assert wire.leader().produce("orders", big).error_code == 10
        assert wire.leader("orders", 1).produce("orders", big, 1).error_code == 0

    def test_a_fetch_session_can_be_refused(self, cluster, wire):
        request = wire.fetch_request("orders", session=(0, 0))
        with cluster.fail(ApiKey.FETCH, errors.FetchSessionIdNotFoundError):
            response = wire.leader().request(request, 12)
        assert (response.error_code, response.responses) == (70, [])

    def test_an_error_without_a_code_cannot_be_injected(self, cluster):
        with pytest.raises(ValueError, match="no error code"):
            cluster.fail(ApiKey.FETCH, errors.ProtocolError)

    def test_reset_ends_all_faults(self, cluster, wire):
        cluster.fail(ApiKey.PRODUCE, errors.NotLeaderOrFollowerError)
        cluster.drop(ApiKey.METADATA)
        cluster.delay(ApiKey.METADATA, 3600)
        cluster.stop(2)
        cluster.pause(3)
        cluster.reset()
        assert cluster.requests == []
        assert wire.leader().produce("orders", wire.batch(b"v")).error_code == 0
        assert [wire.to(node).request(METADATA).controller_id for node in (1, 2, 3)] == [1, 1, 1]

    def test_reset_forgets_requests_that_were_not_read_yet(self, cluster, wire):
        """The last request of a disconnected client is not counted after the reset."""
        busy, go_on = threading.Event(), threading.Event()

        def hold(request, response):
            busy.set()
            assert go_on.wait(20)
            return response

        held, gone = wire.to(1), wire.to(2)
        with cluster.alter(ApiKey.METADATA, hold, broker=1):
            held.send(METADATA)
            assert busy.wait(20)
            gone.send(METADATA)
            gone.socket.close()
            threading.Timer(0.05, go_on.set).start()
            cluster.reset()
        wire.to(3).request(METADATA)
        assert [each.broker for each in cluster.requests] == [3]

    async def test_a_fault_ends_when_its_block_raises(self, cluster):
        with (
            pytest.raises(ZeroDivisionError),
            cluster.fail(ApiKey.PRODUCE, errors.RecordTooLargeError),
        ):
            raise ZeroDivisionError
        await send(cluster, b"v")

    async def test_two_faults_may_apply_at_a_time(self, cluster):
        with (
            cluster.fail(ApiKey.PRODUCE, errors.NotLeaderOrFollowerError, times=1),
            cluster.fail(ApiKey.METADATA, errors.NotLeaderOrFollowerError, times=1),
        ):
            await send(cluster, b"v")
        assert len(cluster.records("orders", 0)) == 1


class TestDropDelayThrottle:
    def test_drop_before_does_not_execute_the_request(self, cluster, wire):
        with cluster.drop(ApiKey.PRODUCE) as fault, pytest.raises(EOFError):
            wire.leader().produce("orders", wire.batch(b"v"))
        assert fault.hits == 1
        assert cluster.offsets("orders", 0) == (0, 0)
        assert [each.api for each in cluster.requests] == [ApiKey.PRODUCE]

    def test_drop_after_executes_the_request(self, cluster, wire):
        batch = wire.batch(b"v", producer=(1, 0, 0))
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            with pytest.raises(EOFError):
                wire.leader().produce("orders", batch)
            assert cluster.offsets("orders", 0) == (0, 1)
            assert wire.leader().produce("orders", batch).base_offset == 0

    def test_when_must_be_before_or_after(self, cluster):
        with pytest.raises(ValueError, match="before"):
            cluster.drop(ApiKey.PRODUCE, when="later")

    def test_delay_delays_requests_or_responses(self, cluster, wire):
        leader = wire.leader()
        with cluster.delay(ApiKey.PRODUCE, 3600):
            leader.produce("orders", wire.batch(b"v"), wait=False)
            cluster.wait_for(lambda: cluster.requests)
            assert cluster.offsets("orders", 0) == (0, 0)
        leader = wire.leader()
        with cluster.delay(ApiKey.PRODUCE, 3600, when="after"):
            leader.produce("orders", wire.batch(b"v"), wait=False)
            cluster.wait_for(lambda: cluster.offsets("orders", 0) == (0, 1))
            assert leader.silent()
        leader = wire.leader()
        with cluster.delay(ApiKey.PRODUCE, 0.01):
            assert leader.produce("orders", wire.batch(b"v")).error_code == 0

    def test_throttle_delays_the_connection(self, cluster, wire):
        connection = wire.leader()
        with cluster.throttle(ApiKey.METADATA, 3600, times=1):
            assert connection.request(METADATA).throttle_time_ms == 3_600_000
        connection.send(METADATA)
        assert wire.leader().request(METADATA).throttle_time_ms == 0
        assert connection.silent()
        assert len(cluster.requests) == 2

    def test_alter_replaces_the_response(self, cluster, wire):
        def twice(request, response):
            response.brokers += response.brokers
            return response

        with cluster.alter(ApiKey.METADATA, twice):
            nodes = [each.node_id for each in wire.leader().request(METADATA).brokers]
        assert nodes == [1, 2, 3, 1, 2, 3]
        connection = wire.leader()
        with cluster.alter(ApiKey.METADATA, lambda request, response: None):
            connection.send(METADATA, expect=False)
            connection.send(messages.ApiVersionsRequest(), 0)
            assert connection.receive().api_keys

    async def test_a_retry_after_a_dropped_response_is_written_twice_without_idempotence(
        self, cluster
    ):
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            await send(cluster, b"v")
            await send(cluster, b"w", enable_idempotence=False)
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            await send(cluster, b"x", enable_idempotence=False)
        # The broker recognizes a retry only if the producer is idempotent.
        assert [r.value for r in cluster.records("orders", 0)] == [b"v", b"w", b"x", b"x"]


class TestBrokers:
    def test_brokers_can_be_stopped_and_started(self, cluster, wire):
        before, address = wire.to(1), cluster.address(1)
        cluster.stop(1)
        assert before.closed()
        with pytest.raises(ConnectionRefusedError):
            wire.at(address)
        assert cluster.leader("orders", 0) == 2
        assert (cluster.leader_epoch("orders", 0), cluster.isr("orders", 0)) == (1, [2, 3])
        cluster.stop(1)
        cluster.start(1)
        cluster.start(1)
        assert cluster.address(1) == address
        assert wire.to(1).request(METADATA).brokers
        # The broker is a follower. It does not become the leader again by itself.
        assert (cluster.leader("orders", 0), cluster.isr("orders", 0)) == (2, [1, 2, 3])

    def test_failover_takes_the_configured_time(self, cluster, wire):
        seen = []

        def stop():
            cluster.stop(1, failover_after=0.02)
            seen.append(cluster.leader("orders", 0))

        # Both calls run in one iteration of the cluster's loop, so that nothing happens between
        # them.
        cluster._runner.call_in_loop(stop)
        assert seen == [1]
        cluster.wait_for(lambda: cluster.leader("orders", 0) == 2)

    def test_a_partition_has_no_leader_until_its_last_replica_returns(self, cluster, wire):
        wire.leader().produce("orders", wire.batch(b"a"))
        for broker in (1, 2, 3):
            cluster.stop(broker)
        assert (cluster.leader("orders", 0), cluster.isr("orders", 0)) == (-1, [3])
        cluster.start(1)
        assert cluster.leader("orders", 0) == -1
        cluster.start(3)
        assert cluster.leader("orders", 0) == 3
        assert cluster.isr("orders", 0) == [1, 3]
        assert len(cluster.records("orders", 0)) == 1

    def test_an_unclean_election_loses_records_of_the_dead_leader(self, cluster, wire):
        cluster.stop(2)
        cluster.stop(3)
        wire.leader().produce("orders", wire.batch(b"a"))
        cluster.stop(1)
        cluster.start(2)
        assert cluster.leader("orders", 0) == -1
        cluster.move_leader("orders", 0, to=2)
        assert cluster.isr("orders", 0) == [2]
        assert cluster.records("orders", 0) == []

    def test_a_paused_broker_answers_after_its_resumption(self, cluster, wire):
        waiting = wire.to(1)
        waiting.send(wire.fetch_request("orders", wait_ms=60_000), 12)
        cluster.wait_for(lambda: cluster.requests)
        cluster.pause(1)
        connection = wire.to(1)
        connection.send(METADATA)
        cluster.produce("orders", [b"v"])
        assert wire.to(2).request(METADATA).brokers
        assert connection.silent()
        assert waiting.silent()
        cluster.resume(1)
        assert connection.receive().brokers
        assert waiting.receive().responses

    def test_disconnect_cuts_connections_and_accepts_new_ones(self, cluster, wire):
        first, second = wire.to(1), wire.to(2)
        for each in (first, second):
            each.request(METADATA)
        assert cluster.connections() == 2
        cluster.disconnect(1)
        assert first.closed()
        assert second.request(METADATA).brokers
        assert wire.to(1).request(METADATA).brokers

    def test_move_leader_changes_leader_and_epoch(self, cluster):
        assert cluster.move_leader("orders", 0) == 2
        assert cluster.move_leader("orders", 0, to=3) == cluster.leader("orders", 0) == 3
        assert cluster.leader_epoch("orders", 0) == 2
        assert cluster.move_leader("orders", 0, to=3) == 3
        assert cluster.leader_epoch("orders", 0) == 2
        cluster.stop(2)
        with pytest.raises(ValueError, match="no such broker is running"):
            cluster.move_leader("orders", 0, to=2)
        cluster.stop(1)
        with pytest.raises(ValueError, match="no other replica whose broker is running"):
            cluster.move_leader("orders", 0)

    def test_controls_refuse_missing_names(self, cluster):
        with pytest.raises(ValueError, match="no broker 9"):
            cluster.stop(9)
        with pytest.raises(ValueError, match="no topic 'x'"):
            cluster.leader("x")
        with pytest.raises(ValueError, match="no partition 5"):
            cluster.leader("orders", 5)

    async def test_a_start_in_a_loop_is_in_force_immediately(self):
        async with EmbeddedCluster(brokers=1, topics=["orders"]) as cluster:
            for _ in range(3):
                cluster.stop(1)
                assert cluster.leader("orders", 0) == -1
                with pytest.raises(ValueError, match="no leader"):
                    cluster.produce("orders", [b"v"])
                cluster.start(1)
                assert cluster.leader("orders", 0) == 1
                cluster.produce("orders", [b"v"])
                await reach(cluster, 1)
            cluster.stop(1)
            cluster.start(1)
            cluster.stop(1)
            with pytest.raises(ConnectionRefusedError):
                await reach(cluster, 1)
            cluster.start(1)
            await send(cluster, b"w")
            assert len(cluster.records("orders", 0)) == 4

    def test_coordinators_can_be_moved(self, cluster):
        before = cluster.coordinator("group")
        moved = cluster.move_coordinator("group")
        assert moved == cluster.coordinator("group") != before

    def test_controls_refuse_a_missing_group(self, cluster):
        assert cluster.committed("group") == {}
        assert "group" not in cluster.groups
        with pytest.raises(ValueError, match="no group"):
            cluster.rebalance("group")


class TestData:
    def test_produce_writes_and_records_reads(self, cluster):
        header = [("h", b"1")]
        placed = cluster.produce(
            "orders",
            [b"a", (b"k", None), ProducerRecord("orders", b"c", b"k", 2, 77, header)],
            timestamp=5,
            compression="zstd",
        )
        assert [(each.partition, each.offset) for each in placed] == [(0, 0), (0, 1), (2, 0)]
        assert [(r.value, r.key, r.timestamp) for r in cluster.records("orders", 0)] == [
            (b"a", None, 5),
            (None, b"k", 5),
        ]
        (record,) = cluster.records("orders", 2)
        assert (record.value, record.timestamp, list(record.headers)) == (b"c", 77, header)
        assert len(cluster.records("orders")) == 3
        assert [each.offset for each in cluster.records("orders", 0, start=1)] == [1]
        for call in (
            lambda: cluster.records("nowhere", 0),
            lambda: cluster.records("orders", 3),
            lambda: cluster.produce("orders", [b"v"], 3),
        ):
            with pytest.raises(ValueError, match="no "):
                call()

    def test_produce_refuses_what_a_broker_refuses(self, cluster):
        cluster.produce("orders", [b"a"], producer_id=1, base_sequence=0)
        with pytest.raises(ValueError, match="OUT_OF_ORDER"):
            cluster.produce("orders", [b"a"], producer_id=1, base_sequence=5)
        with pytest.raises(ValueError, match="already exists"):
            cluster.create_topic("orders")

    def test_add_partitions_adds_partitions(self, cluster):
        cluster.add_partitions("orders", 5)
        cluster.add_partitions("orders", 4)
        assert cluster.topics == {"orders": 5}

    def test_old_segments_are_removed_by_size(self, wire_to):
        configs = {"segment.bytes": 10_000, "retention.bytes": 50_000}
        with EmbeddedCluster(1, retention_bytes=1 << 20) as cluster:
            cluster.create_topic("small", configs=configs)
            for _ in range(200):
                cluster.produce("small", [bytes(1000)])
            start, end = cluster.offsets("small")
            assert end == 200
            assert 40 <= end - start <= 60
            assert [r.offset for r in cluster.records("small", 0)] == list(range(start, end))
            answer = wire_to(cluster).to(1).fetch("small", offset=0)
            assert answer.error_code == errors.OffsetOutOfRangeError.code


class TestWaiting:
    def test_wait_for_works_in_a_thread(self, cluster, wire):
        timer = threading.Timer(0.01, lambda: cluster.produce("orders", [b"v"]))
        timer.start()
        assert cluster.wait_for(lambda: cluster.records("orders", 0))[0].value == b"v"
        timer.join()

    def test_wait_for_raises_after_its_timeout(self, cluster):
        with pytest.raises(errors.KafkaTimeoutError):
            cluster.wait_for(lambda: False, 0.01)

    async def test_until_works_in_a_loop(self, cluster):
        with pytest.raises(errors.IllegalStateError, match="until"):
            cluster.wait_for(lambda: True)
        assert await asyncio.to_thread(cluster.wait_for, lambda: 7, 1) == 7
        timer = threading.Timer(0.01, lambda: cluster.produce("orders", [b"v"]))
        timer.start()
        assert await cluster.until(lambda: cluster.offsets("orders", 0) == (0, 1))
        timer.join()
        with pytest.raises(errors.KafkaTimeoutError):
            await cluster.until(lambda: False, 0.01)

    async def test_an_exception_of_a_predicate_is_raised(self, cluster):
        with pytest.raises(ZeroDivisionError):
            await cluster.until(lambda: 1 // 0, 5)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(cluster.wait_for, lambda: 1 // 0, 5)


class TestRequests:
    async def test_requests_have_their_fields(self, cluster):
        # With several servers, the client tries the next one if the first is slow.
        first, _, _ = cluster.bootstrap_servers.split(",")
        async with Producer(bootstrap_servers=first, client_id="mine") as producer:
            await producer.send("orders", b"v", partition=0)
        request = next(r for r in cluster.requests if r.api == ApiKey.PRODUCE)
        assert request.api is ApiKey.PRODUCE
        assert request.broker == cluster.leader("orders", 0)
        assert request.version == messages.ProduceRequest.max_version
        assert isinstance(request.message, messages.ProduceRequest)
        assert request.message.acks == -1
        assert [r.api for r in cluster.requests][:2] == [ApiKey.API_VERSIONS, ApiKey.METADATA]

    async def test_requests_has_the_last_ten_thousand(self, cluster):
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            for _ in range(101):
                answers = [
                    client.send(messages.MetadataRequest(topics=[]), to=AnyBroker())
                    for _ in range(100)
                ]
                for answer in answers:
                    await answer
        assert len(cluster.requests) == 10_000
        assert cluster.requests[-1].api == ApiKey.METADATA

    def test_requests_is_a_copy(self, cluster):
        kept = cluster.requests
        kept.append(None)
        assert cluster.requests == []


class TestThreads:
    def test_all_controls_work_from_many_threads(self, cluster):
        raised = []

        def work(number):
            try:
                for _ in range(20):
                    cluster.produce("orders", [b"v"], number % 3)
                    with cluster.fail(ApiKey.PRODUCE, errors.NotLeaderOrFollowerError, times=1):
                        cluster.move_leader("orders", number % 3)
                    assert cluster.records("orders", number % 3)
                    assert cluster.requests == []
            except BaseException as error:
                raised.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert raised == []
        assert len(cluster.records("orders")) == 120


def test_a_bug_of_the_cluster_is_raised_at_its_end(wire_to, caplog):
    def broken(request, response):
        raise RuntimeError("broken on purpose")

    def use():
        with EmbeddedCluster(1, {"orders": 1}) as cluster:
            cluster.alter(ApiKey.METADATA, broken)
            with pytest.raises(EOFError):
                wire_to(cluster).to(1).request(METADATA)

    with pytest.raises(RuntimeError, match="This is a bug in the embedded cluster"):
        use()
    assert "broken on purpose" in caplog.text
