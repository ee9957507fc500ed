"""Each control of the embedded cluster, as the tests of a user's service would use it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from aiokclient import Consumer, Producer, ProducerRecord
from aiokclient.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    UsageError,
)
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=3, topics={"orders": 6}) as cluster:
        yield cluster


async def send(cluster: EmbeddedCluster, *values: bytes, **options: Any) -> list[Any]:
    """Send the values to the first partition of "orders".

    Wait for each acknowledgement before the next.
    """
    options = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5, **options}
    async with Producer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        return [await producer.send("orders", value, partition=0) for value in values]


async def reach(cluster: EmbeddedCluster, broker: int) -> None:
    """Open a connection to a broker, and close it."""
    _, writer = await asyncio.open_connection(*cluster.address(broker))
    writer.close()
    await writer.wait_closed()


def produced(cluster: EmbeddedCluster) -> int:
    return sum(request.api == ApiKey.PRODUCE for request in cluster.requests)


class TestFail:
    async def test_a_fault_applies_the_given_number_of_times(
        self, cluster: EmbeddedCluster
    ) -> None:
        with cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=2, broker=None) as fault:
            await send(cluster, b"v")
            assert fault.hits == 2
        assert produced(cluster) == 3
        assert [r.value for r in cluster.records("orders", 0)] == [b"v"]

    async def test_a_fault_ends_with_its_block(self, cluster: EmbeddedCluster) -> None:
        with cluster.fail(ApiKey.PRODUCE, RecordTooLargeError):
            for _ in range(2):
                with pytest.raises(RecordTooLargeError):
                    await send(cluster, b"v")
        await send(cluster, b"w")
        assert [r.value for r in cluster.records("orders", 0)] == [b"w"]

    async def test_a_fault_ends_when_its_block_raises(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(ZeroDivisionError), cluster.fail(ApiKey.PRODUCE, RecordTooLargeError):
            raise ZeroDivisionError
        await send(cluster, b"v")

    async def test_a_fault_may_apply_to_one_broker(self, cluster: EmbeddedCluster) -> None:
        leader = cluster.leader("orders", 0)
        other = next(broker for broker in (1, 2, 3) if broker != leader)
        with cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, broker=other):
            await send(cluster, b"v")
        with cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, broker=leader):
            with pytest.raises(RecordTooLargeError):
                await send(cluster, b"v")
            cluster.move_leader("orders", 0, to=other)
            await send(cluster, b"w")

    async def test_two_faults_may_apply_at_a_time(self, cluster: EmbeddedCluster) -> None:
        with (
            cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=1),
            cluster.fail(ApiKey.METADATA, NotLeaderOrFollowerError, times=1),
        ):
            await send(cluster, b"v")
        assert len(cluster.records("orders", 0)) == 1


class TestDropAndDelay:
    async def test_drop_before_does_not_execute_the_request(self, cluster: EmbeddedCluster) -> None:
        with cluster.drop(ApiKey.PRODUCE, when="before", times=1):
            await send(cluster, b"v")
        assert produced(cluster) == 2
        assert len(cluster.records("orders", 0)) == 1

    async def test_drop_after_executes_the_request(self, cluster: EmbeddedCluster) -> None:
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            await send(cluster, b"v")
            await send(cluster, b"w", enable_idempotence=False)
        with cluster.drop(ApiKey.PRODUCE, when="after", times=1):
            await send(cluster, b"x", enable_idempotence=False)
        # The broker recognizes a retry only if the producer is idempotent.
        assert [r.value for r in cluster.records("orders", 0)] == [b"v", b"w", b"x", b"x"]

    async def test_drop_is_before_by_default(self, cluster: EmbeddedCluster) -> None:
        with cluster.drop(ApiKey.PRODUCE, times=1):
            await send(cluster, b"v", enable_idempotence=False)
        assert len(cluster.records("orders", 0)) == 1

    async def test_delay_delays_the_response(self, cluster: EmbeddedCluster) -> None:
        cluster.produce("orders", [b"v"])
        options: Any = {"auto_offset_reset": "earliest"}
        async with Consumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, **options
        ) as consumer:
            with cluster.delay(ApiKey.FETCH, 3600):
                consumer.seek_to_beginning()
                await cluster.until(lambda: any(r.api == ApiKey.FETCH for r in cluster.requests))
                late = await consumer.poll(timeout=0.05)
            # A fetch that began before the delay may still return the one record.
            assert len(late) <= 1
        with cluster.delay(ApiKey.PRODUCE, 0.01):
            await send(cluster, b"w")


class TestBrokers:
    async def test_brokers_stop_and_start_and_leaders_move(self, cluster: EmbeddedCluster) -> None:
        leader = cluster.leader("orders", 0)
        assert cluster.stop(leader) is None
        assert cluster.leader("orders", 0) not in (leader, -1)
        await send(cluster, b"v")
        cluster.start(leader)
        assert cluster.move_leader("orders", 0, to=leader) == leader
        await send(cluster, b"w")
        assert [r.broker for r in cluster.requests if r.api == ApiKey.PRODUCE][-1] == leader
        assert len(cluster.records("orders", 0)) == 2

    async def test_a_start_in_a_loop_is_in_force_immediately(self) -> None:
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

    def test_coordinators_can_be_moved(self, cluster: EmbeddedCluster) -> None:
        before = cluster.coordinator("group")
        moved = cluster.move_coordinator("group")
        assert moved == cluster.coordinator("group") != before

    def test_controls_refuse_a_missing_group(self, cluster: EmbeddedCluster) -> None:
        assert cluster.committed("group") == {}
        assert "group" not in cluster.groups
        with pytest.raises(ValueError, match="no group"):
            cluster.rebalance("group")


class TestRecords:
    async def test_produce_writes_and_records_reads(self, cluster: EmbeddedCluster) -> None:
        cluster.produce("orders", [b"v"])
        cluster.produce("orders", [(b"k", b"w"), (b"k", None), None])
        cluster.produce("orders", [ProducerRecord("orders", b"x", b"k", 3, 99, [("h", b"1")])])
        assert [(r.key, r.value) for r in cluster.records("orders", 0)] == [
            (None, b"v"),
            (b"k", b"w"),
            (b"k", None),
            (None, None),
        ]
        (record,) = cluster.records("orders", 3)
        assert (record.topic, record.partition, record.offset) == ("orders", 3, 0)
        assert (record.timestamp, list(record.headers)) == (99, [("h", b"1")])
        assert len(cluster.records("orders")) == 5
        assert cluster.records("orders", 5) == []
        for call in (
            lambda: cluster.records("nowhere", 0),
            lambda: cluster.records("orders", 6),
            lambda: cluster.produce("orders", [b"v"], 6),
        ):
            with pytest.raises(ValueError, match="no "):
                call()

    async def test_records_has_what_clients_send(self, cluster: EmbeddedCluster) -> None:
        await send(cluster, b"a", b"b", compression_type="zstd")
        assert [r.value for r in cluster.records("orders", 0)] == [b"a", b"b"]


class TestRequests:
    async def test_requests_have_their_fields(self, cluster: EmbeddedCluster) -> None:
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

    async def test_requests_has_the_last_ten_thousand(self, cluster: EmbeddedCluster) -> None:
        from aiokclient import AnyBroker, Client

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

    def test_requests_is_a_copy(self, cluster: EmbeddedCluster) -> None:
        kept = cluster.requests
        kept.append(None)  # type: ignore[arg-type]
        assert cluster.requests == []


class TestWaiting:
    def test_wait_for_works_in_a_thread_without_a_loop(self, cluster: EmbeddedCluster) -> None:
        timer = threading.Timer(0.01, cluster.produce, ("orders", [b"v"]))
        timer.start()
        found = cluster.wait_for(lambda: cluster.records("orders", 0), 20)
        assert [r.value for r in found] == [b"v"]
        timer.join()
        with pytest.raises(KafkaTimeoutError) as raised:
            cluster.wait_for(lambda: False, 0.01)
        assert isinstance(raised.value, TimeoutError)

    async def test_until_works_in_a_loop(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(IllegalStateError, match="until") as raised:
            cluster.wait_for(lambda: True, 1)
        assert isinstance(raised.value, UsageError)
        assert await asyncio.to_thread(cluster.wait_for, lambda: 7, 1) == 7
        waiting = asyncio.create_task(cluster.until(lambda: cluster.records("orders", 0), 20))
        await asyncio.sleep(0)
        cluster.produce("orders", [b"v"])
        assert len(await waiting) == 1
        with pytest.raises(KafkaTimeoutError):
            await cluster.until(lambda: False, 0.01)

    async def test_an_exception_of_a_predicate_is_raised(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(ZeroDivisionError):
            await cluster.until(lambda: 1 // 0, 5)
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(cluster.wait_for, lambda: 1 // 0, 5)

    async def test_reset_removes_faults_and_requests(self, cluster: EmbeddedCluster) -> None:
        cluster.produce("orders", [b"v"])
        cluster.fail(ApiKey.PRODUCE, RecordTooLargeError)
        cluster.drop(ApiKey.METADATA)
        cluster.delay(ApiKey.FETCH, 3600)
        cluster.stop(2)
        await asyncio.sleep(0)
        cluster.reset()
        assert cluster.requests == []
        await send(cluster, b"w")
        assert [r.value for r in cluster.records("orders", 0)] == [b"v", b"w"]
        assert [r.broker for r in cluster.requests]
        await reach(cluster, 2)


class TestThreads:
    def test_all_controls_work_from_many_threads(self, cluster: EmbeddedCluster) -> None:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for _ in range(20):
                    cluster.produce("orders", [b"v"], number % 6)
                    with cluster.fail(ApiKey.PRODUCE, NotLeaderOrFollowerError, times=1):
                        cluster.move_leader("orders", number % 6)
                    assert cluster.records("orders", number % 6)
                    assert cluster.requests == []
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(cluster.records("orders")) == 120
