"""Failures: which are retrieved, which are reported, and what the end of `async with` raises."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Delivery, Producer
from aiokclient.errors import (
    BufferExhaustedError,
    ClosedError,
    DeliveryErrors,
    DeliveryTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    RecordError,
    RecordTooLargeError,
    RetriableError,
    SerializationError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

Make = Callable[..., Producer[Any, Any]]


async def left_normally(producer: Producer[Any, Any]) -> None:
    """Leave the producer's `async with` block as if nothing had been raised in it."""
    await producer.__aexit__(None, None, None)


async def by_await(producer: Producer[Any, Any], each: Any) -> None:
    with pytest.raises(TopicAuthorizationError):
        await each


async def by_result(producer: Producer[Any, Any], each: Any) -> None:
    await producer.flush()
    with pytest.raises(TopicAuthorizationError):
        each.result()


async def by_exception(producer: Producer[Any, Any], each: Any) -> None:
    await producer.flush()
    assert isinstance(each.exception(), TopicAuthorizationError)


async def by_gather(producer: Producer[Any, Any], each: Any) -> None:
    with pytest.raises(TopicAuthorizationError):
        await producer.gather([each])


async def by_gathered_results(producer: Producer[Any, Any], each: Any) -> None:
    assert len(await producer.gather([each], return_exceptions=True)) == 1


async def by_asyncio(producer: Producer[Any, Any], each: Any) -> None:
    await asyncio.gather(each, return_exceptions=True)


SEEN = [by_await, by_result, by_exception, by_gather, by_gathered_results, by_asyncio]


async def by_nothing(producer: Producer[Any, Any], each: Any) -> None:
    await producer.flush()


async def by_a_callback(producer: Producer[Any, Any], each: Any) -> None:
    called: list[Any] = []
    each.add_done_callback(called.append)
    await producer.flush()
    await asyncio.sleep(0)
    assert called


async def by_a_glance(producer: Producer[Any, Any], each: Any) -> None:
    await producer.flush()
    assert each.done()
    assert each.offset == -1
    assert "TopicAuthorizationError" in repr(each)


async def by_a_wait_that_was_cancelled(producer: Producer[Any, Any], each: Any) -> None:
    task = asyncio.ensure_future(each)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await producer.flush()


UNSEEN = [by_nothing, by_a_callback, by_a_glance, by_a_wait_that_was_cancelled]


async def result_of(delivery: Any) -> Any:
    return await delivery


async def failures_of(deliveries: list[Any]) -> int:
    """Await each delivery, and return how many have failed."""
    results = [await asyncio.gather(each, return_exceptions=True) for each in deliveries]
    return sum(isinstance(result, KafkaError) for (result,) in results)


class TestRetrieval:
    @pytest.mark.parametrize("see", SEEN)
    async def test_a_retrieved_failure_is_not_raised_again(
        self, make: Make, topic: str, cluster: EmbeddedCluster, see: Any
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        async with make() as producer:
            await see(producer, producer.send(topic, b"v"))

    @pytest.mark.parametrize("see", UNSEEN)
    async def test_an_unretrieved_failure_is_raised_at_the_end(
        self, make: Make, topic: str, cluster: EmbeddedCluster, see: Any
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        producer = await make()
        await see(producer, producer.send(topic, b"v"))
        with pytest.raises(DeliveryErrors) as caught:
            await left_normally(producer)
        assert caught.value.count == 1
        (error,) = caught.value.exceptions
        assert isinstance(error, TopicAuthorizationError)
        assert isinstance(caught.value, ExceptionGroup)

    @pytest.mark.parametrize("count", [1, 99, 100, 101, 5000])
    async def test_delivery_errors_has_the_first_hundred_and_the_count(
        self, make: Make, topic: str, cluster: EmbeddedCluster, count: int
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        producer = await make(batch_size=1000)
        deliveries = [producer.send(topic, b"v" * 20) for _ in range(count + 3)]
        for i in (0, count // 2, -1):
            await producer.gather([deliveries[i]], return_exceptions=True)
        seen = len({0, count // 2, count + 2})
        with pytest.raises(DeliveryErrors) as caught:
            await left_normally(producer)
        assert caught.value.count == count + 3 - seen
        assert len(caught.value.exceptions) == min(count + 3 - seen, 100)
        assert str(caught.value.count) in str(caught.value)

    async def test_a_failure_retrieved_twice_counts_once(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        producer = await make()
        deliveries = producer.send_many(topic, [b"v"] * 4)
        for _ in range(3):
            await by_await(producer, deliveries[1])
            await producer.gather(deliveries[1:3], return_exceptions=True)
        with pytest.raises(DeliveryErrors) as caught:
            await left_normally(producer)
        assert caught.value.count == 2

    @pytest.mark.parametrize("end", ["close", "exception", "cancellation"])
    async def test_close_and_exceptions_do_not_raise_failures(
        self, make: Make, topic: str, cluster: EmbeddedCluster, end: str
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        if end == "close":
            producer = await make()
            producer.send(topic, b"v")
            await producer.close()
            return
        kind = ZeroDivisionError if end == "exception" else asyncio.CancelledError

        async def run() -> None:
            async with make() as producer:
                producer.send(topic, b"v")
                await producer.flush()
                raise kind

        with pytest.raises(kind):
            await run()

    async def test_flush_neither_raises_nor_retrieves_failures(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError, times=1)
        async with make() as producer:
            mine = producer.send(topic, b"mine")
            await producer.flush()
            await producer.drain()
            assert (await producer.send(topic, b"another's")).offset == 0
            await by_await(producer, mine)


class TestOnDeliveryError:
    async def test_on_delivery_error_is_called_in_the_loop_for_each_failure(
        self, make: Make, wide: str, cluster: EmbeddedCluster
    ) -> None:
        told: list[Any] = []
        loop = asyncio.get_running_loop()

        def tell(delivery: Any) -> None:
            assert asyncio.get_running_loop() is loop
            assert delivery.done()
            told.append((delivery.topic, delivery.partition, delivery.timestamp))

        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        async with make(on_delivery_error=tell) as producer:
            deliveries = [
                producer.send(wide, b"v", partition=i % 4, timestamp=1000 + i) for i in range(40)
            ]
            await producer.gather(deliveries, return_exceptions=True)
        assert sorted(told) == sorted((wide, i % 4, 1000 + i) for i in range(40))

    @pytest.mark.parametrize("topic", ["t", "not-known"])
    def test_on_delivery_error_was_called_when_flush_returns(self, topic: str) -> None:
        async def scenario(world: World) -> None:
            told: list[Any] = []

            def tell(delivery: Any) -> None:
                told.append(delivery.exception())

            async with world.producer(max_block_ms=100, on_delivery_error=tell) as producer:
                await producer.prepare("t")
                world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
                for partition in (None, 0) * 500:
                    producer.send(topic, b"v", partition=partition)
                await producer.flush()
                assert len(told) == 1000

        simulate(scenario)

    @pytest.mark.parametrize("case", ["written late", "missing", "split", "moved and split"])
    def test_on_delivery_error_receives_the_delivery_that_send_returned(self, case: str) -> None:
        """The library moves the records of these deliveries to other batches before they fail."""

        async def scenario(world: World) -> None:
            told: list[Delivery] = []
            options: dict[str, Any] = {"linger_ms": 5, "batch_size": 200_000}
            async with world.producer(on_delivery_error=told.append, **options) as producer:
                if case == "split":
                    await producer.prepare("t")
                expected = []
                with contextlib.ExitStack() as faults:
                    if "split" in case:
                        fault = world.cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, times=1)
                        faults.enter_context(fault)
                    for number in range(40):
                        partition = 0 if number % 3 else None
                        if case == "missing" and number % 2:
                            partition = 7
                        expected.append(producer.send("t", b"x" * 1000, partition=partition))
                    many = producer.send_many("t", [b"x" * 1000] * 20)
                    expected += many
                    if "split" in case:
                        await world.cluster.until(lambda: world.requests(ApiKey.PRODUCE))
                with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
                    await producer.flush()
                written = [each for each in expected if each.exception() is None]
                failed = [each for each in expected if each.exception() is not None]
                assert len(failed) > 10
                assert all(each in failed for each in told)
                assert set(told) == set(failed)
                assert len(told) == len(failed)
                assert not set(told) & set(written)
                assert all(each.topic == "t" and each.exception() is not None for each in told)
                assert not producer._require_engine().failures.origins

        simulate(scenario)

    @pytest.mark.parametrize(
        "raised", [asyncio.CancelledError, GeneratorExit, ValueError, BaseException, KafkaError]
    )
    @pytest.mark.parametrize("end", ["flush", "close", "leave", "nothing"])
    def test_whatever_on_delivery_error_raises_is_logged_and_all_failures_are_reported(
        self, raised: type[BaseException], end: str
    ) -> None:
        async def scenario(world: World) -> None:
            logged: list[Any] = []
            told: list[Any] = []
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda loop, context: logged.append(context["exception"]))
            task = asyncio.current_task()

            def tell(delivery: Delivery) -> None:
                told.append(delivery.exception())
                assert asyncio.current_task() is not task
                raise raised("of the handler")

            world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
            producer = await world.producer(on_delivery_error=tell)
            for _ in range(5):
                producer.send("t", b"v")
            if end == "flush":
                await producer.flush()
                assert len(told) == 5
            elif end == "close":
                await producer.close()
                assert len(told) == 5
            elif end == "leave":
                await left_normally(producer)
                assert len(told) == 5
            await world.cluster.until(lambda: len(told) == 5)
            await producer.close()
            assert [type(error) for error in told] == [TopicAuthorizationError] * 5
            assert [type(error) for error in logged] == [raised] * 5

        simulate(scenario)

    def test_nothing_is_stored_of_records_that_have_moved_and_were_written(self) -> None:
        async def scenario(world: World) -> None:
            told: list[Delivery] = []
            options: dict[str, Any] = {"linger_ms": 5, "batch_size": 200_000}
            async with world.producer(on_delivery_error=told.append, **options) as producer:
                with world.cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, times=1):
                    deliveries = producer.send_many("t", [b"x" * 1000] * 20)
                    await producer.gather(deliveries)
                assert not told
                assert not producer._require_engine().failures.origins

        simulate(scenario)

    async def test_on_delivery_error_retrieves_a_failure_only_if_it_looks(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        async with make(on_delivery_error=lambda delivery: delivery.exception()) as producer:
            producer.send(topic, b"v")
        producer = await make(on_delivery_error=lambda delivery: delivery.done())
        producer.send(topic, b"v")
        with pytest.raises(DeliveryErrors):
            await left_normally(producer)

    @pytest.mark.parametrize("end", ["normal", "close", "close now", "exception"])
    async def test_on_delivery_error_was_called_when_the_producer_is_closed(
        self, make: Make, topic: str, cluster: EmbeddedCluster, end: str
    ) -> None:
        told: list[Any] = []
        producer = make(
            on_delivery_error=lambda delivery: told.append(delivery.exception()),
            close_timeout_ms=50,
        )
        await producer.start()
        await producer.prepare(topic)
        if end == "normal":
            cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
        else:
            cluster.pause(1)
        producer.send_many(topic, [b"v"] * 5000)
        if end == "normal":
            await left_normally(producer)
        elif end == "exception":
            await producer.__aexit__(ValueError, ValueError(), None)
        else:
            await producer.close(0.05 if end == "close" else 0)
        assert len(told) == 5000
        kind = TopicAuthorizationError if end == "normal" else ClosedError
        assert {type(error) for error in told} == {kind}

    def test_failures_are_logged_by_topic_and_error_by_default(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
            producer = await world.producer()
            for _ in range(20):
                for each in ("one", "two"):
                    producer.send(each, b"v")
                    await producer.flush()
            lines = caplog.messages
            assert len(lines) == 2
            assert "topic one " in lines[0]
            assert "topic two " in lines[1]
            assert all("TOPIC_AUTHORIZATION_FAILED" in line for line in lines)
            await producer.close()

        with caplog.at_level(logging.ERROR, "aiokclient"):
            simulate(scenario, topics={"one": 1, "two": 4})

    @pytest.mark.parametrize(
        "way", ["await", "later", "task", "gather", "own gather", "wait", "callback"]
    )
    def test_retrieved_failures_are_neither_logged_nor_raised(
        self, caplog: pytest.LogCaptureFixture, way: str
    ) -> None:
        async def scenario(world: World) -> None:
            async with world.producer() as producer:
                with world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError):
                    deliveries = [producer.send("t", b"v") for _ in range(20)]
                    if way == "await":
                        for delivery in deliveries:
                            with pytest.raises(TopicAuthorizationError):
                                await delivery
                    elif way == "later":
                        await producer.flush()
                        await asyncio.sleep(100)
                        assert await failures_of(deliveries) == 20
                    elif way == "task":
                        tasks = [asyncio.create_task(result_of(each)) for each in deliveries]
                        await asyncio.gather(*tasks, return_exceptions=True)
                    elif way == "gather":
                        with pytest.raises(TopicAuthorizationError):
                            await asyncio.gather(*deliveries)
                        await asyncio.sleep(1)
                    elif way == "own gather":
                        with pytest.raises(TopicAuthorizationError):
                            await producer.gather(deliveries)
                    elif way == "wait":
                        done, _ = await asyncio.wait(deliveries)
                        assert all(each.exception() for each in done)
                    else:
                        for each in deliveries:
                            each.add_done_callback(lambda delivery: delivery.exception())
                        await producer.flush()
                deliveries.clear()
                assert (await producer.send("t", b"w")).offset == 0
            gc.collect()

        # Collect the deliveries of earlier tests, so that their failures are not logged below.
        gc.collect()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "aiokclient"):
            simulate(scenario)
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    def test_failures_are_logged_when_the_last_delivery_is_collected(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def scenario(world: World) -> None:
            producer = await world.producer()
            world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
            kept = [producer.send("t", b"v") for _ in range(5)]
            await producer.flush()
            assert kept[0].exception() is not None
            assert not caplog.records
            kept.clear()
            await asyncio.sleep(0)
            (record,) = caplog.records
            assert "4 record(s) for topic t" in record.getMessage()
            await producer.close()

        with caplog.at_level(logging.ERROR, "aiokclient"):
            simulate(scenario)

    def test_send_all_raises_for_all_records_that_it_has_sent(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(1000)

        async def scenario(world: World) -> None:
            async with world.producer(batch_size=4000, buffer_memory=50_000) as producer:
                world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
                for items in ([bytes(1000)] * 5000, endless()):
                    with pytest.raises(TopicAuthorizationError):
                        await producer.send_all("t", items)

        with caplog.at_level(logging.ERROR, "aiokclient"):
            simulate(scenario)
        assert not caplog.records

    @pytest.mark.parametrize("seen", ["send", "delivery", "flush", "no"])
    def test_the_failure_of_the_producer_is_raised_once(self, seen: str) -> None:
        class Broken(KafkaError):
            pass

        async def scenario(world: World) -> None:
            producer = await world.producer()
            world.cluster.pause(1)
            delivery = producer.send("t", b"v")
            producer._supervisor.fail(Broken("mine"), "a task")
            if seen == "send":
                with pytest.raises(Broken):
                    producer.send("t", b"v")
            elif seen == "flush":
                with pytest.raises(Broken):
                    await producer.flush()
            if seen in ("delivery", "send", "flush"):
                with pytest.raises(Broken):
                    await delivery
                await left_normally(producer)
            else:
                with pytest.raises(Broken):
                    await left_normally(producer)

        simulate(scenario)

    def test_the_client_does_not_raise_delivery_errors_again(self) -> None:
        async def scenario(world: World) -> None:
            async with world.client() as client:
                world.cluster.fail(ApiKey.PRODUCE, TopicAuthorizationError)
                producer = await Producer(client=client)
                kept = producer.send("t", b"v")
                with pytest.raises(DeliveryErrors) as caught:
                    await left_normally(producer)
                assert caught.value.count == 1
                await left_normally(producer)
                assert kept.exception() is not None

        simulate(scenario)


class TestKinds:
    def test_a_record_that_expires_fails_with_delivery_timeout_error(self) -> None:
        async def scenario(world: World) -> None:
            options = {"delivery_timeout_ms": 100, "request_timeout_ms": 50, "close_timeout_ms": 50}
            async with world.producer(**options) as producer:
                await producer.prepare("t")
                world.cluster.pause(1)
                delivery = producer.send("t", b"v")
                with pytest.raises(DeliveryTimeoutError) as caught:
                    await delivery
                error = caught.value
                assert isinstance(error, KafkaTimeoutError | RetriableError | TimeoutError)
                assert isinstance(error, TimeoutError)
                assert error.retriable
                assert error.topic_partition == ("t", 0)
                world.cluster.resume(1)

        simulate(scenario)

    @pytest.mark.parametrize("partition", [None, 0])
    def test_the_error_of_a_missing_topic_names_it_without_a_partition(
        self, partition: int | None
    ) -> None:
        async def scenario(world: World) -> None:
            async with world.producer(max_block_ms=100) as producer:
                delivery = producer.send("does-not-exist", b"v", partition=partition)
                with pytest.raises(UnknownTopicOrPartitionError) as caught:
                    await delivery
                assert caught.value.code == 3
                assert "does-not-exist" in str(caught.value)
                assert "does-not-exist--1" not in str(caught.value)

        simulate(scenario)

    async def test_a_record_for_a_topic_without_metadata_fails(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        async with make(max_block_ms=100, close_timeout_ms=50) as producer:
            cluster.pause(1)
            with pytest.raises(DeliveryTimeoutError):
                await producer.send(topic, b"v")
            cluster.resume(1)

    async def test_a_record_is_delivered_when_its_topic_appears_in_time(
        self, make: Make, cluster: EmbeddedCluster
    ) -> None:
        async with make() as producer:
            delivery = producer.send("comes-in-time", b"v")
            cluster.create_topic("comes-in-time")
            assert (await delivery).offset == 0
        cluster.delete_topic("comes-in-time")

    async def test_an_unknown_error_code_is_reported(
        self, make: Make, topic: str, cluster: EmbeddedCluster
    ) -> None:
        cluster.fail(ApiKey.PRODUCE, 4321)
        async with make() as producer:
            with pytest.raises(KafkaError) as caught:
                await producer.send(topic, b"v")
            assert caught.value.code == 4321
            assert "4321" in str(caught.value)

    def test_buffer_exhausted_error_is_retriable(self) -> None:
        assert issubclass(BufferExhaustedError, RetriableError)


def reads_a_cancelled_future(*args: Any) -> Any:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.cancel()
    return future.result()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("option", ["partitioner", "value_serializer", "key_serializer"])
def test_function_of_a_producer_that_reads_a_cancelled_future_fails_its_record(
    option: str, known: bool
) -> None:
    """Its CancelledError would end the calling task as cancelled, or lose waiting records."""

    async def scenario(world: World) -> None:
        options: dict[str, Any] = {option: reads_a_cancelled_future}
        async with world.producer(**options) as producer:
            if known:
                await producer.prepare("t")
            with pytest.raises(SerializationError) as raised:
                await producer.send("t", b"v", key=b"k")
            assert isinstance(raised.value.__cause__, asyncio.CancelledError)
            await producer.flush()

    simulate(scenario)


def test_prepare_of_a_serializer_that_awaits_a_cancelled_future_fails_the_call() -> None:
    class Schemas:
        def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
            return bytes(value)

        async def prepare(self, topic: str) -> None:
            reads_a_cancelled_future()

    async def scenario(world: World) -> None:
        async with world.producer(value_serializer=Schemas()) as producer:
            with pytest.raises(SerializationError):
                await producer.prepare("t")

    simulate(scenario)


def test_deserializer_that_reads_a_cancelled_future_is_an_error_of_its_record() -> None:
    async def scenario(world: World) -> None:
        async with world.producer() as producer:
            await producer.send("t", b"v")
        options: dict[str, Any] = {"auto_offset_reset": "earliest"}
        options["value_deserializer"] = reads_a_cancelled_future
        async with world.consumer("t", **options) as consumer:
            with pytest.raises(RecordError):
                await consumer.get()

    simulate(scenario)
