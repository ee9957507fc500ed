"""Failures name the partition of their record."""

import asyncio
from collections.abc import Sequence

import pytest
from world import World, simulate

from aiokclient import Delivery, ProducerRecord
from aiokclient.errors import (
    ApiTimeoutError,
    DeliveryTimeoutError,
    DisconnectedError,
    KafkaError,
)

LOST = {"disconnected": DisconnectedError, "timed out": ApiTimeoutError}
"""The expected error of a lost request, by the way it was lost."""


class TestPartitions:
    @pytest.mark.parametrize("end", ["unknown", "silent", "closed"])
    @pytest.mark.parametrize("many", [False, True])
    def test_failures_name_the_chosen_partitions_when_the_topic_is_not_known(
        self, end: str, many: bool
    ) -> None:
        chosen = [None, 3, 3, 0, None, 3]
        expected = [-1 if partition is None else partition for partition in chosen]
        reported: list[int] = []

        async def scenario(world: World) -> None:
            def report(delivery: Delivery) -> None:
                reported.append(-1 if delivery.partition is None else delivery.partition)

            producer = await world.producer(max_block_ms=100, on_delivery_error=report)
            if end == "silent":
                world.cluster.pause(1)
            deliveries: Sequence[Delivery]
            if many:
                records = [ProducerRecord("none", b"v", partition=each) for each in chosen]
                deliveries = producer.send_many("none", records)
            else:
                deliveries = [producer.send("none", b"v", partition=each) for each in chosen]
            told: list[int] = []
            for number, delivery in enumerate(deliveries):
                delivery.add_done_callback(lambda _, number=number: told.append(number))
            assert [delivery.partition for delivery in deliveries] == chosen
            if end == "closed":
                await producer.close(0)
            results = await asyncio.gather(*deliveries, return_exceptions=True)
            assert sorted(told) == list(range(len(chosen)))
            for delivery, result, partition in zip(deliveries, results, expected, strict=True):
                assert isinstance(result, KafkaError)
                assert result.topic_partition == ("none", partition)
                assert delivery.exception() is result
                if partition >= 0:
                    assert f"none-{partition}" in str(result)
            assert [delivery.partition for delivery in deliveries] == chosen
            await asyncio.sleep(0.1)
            assert sorted(reported) == sorted(expected)
            await producer.close(0)

        simulate(scenario)

    @pytest.mark.parametrize("end", ["lost answers", "closed"])
    def test_each_failure_names_its_own_partition(self, end: str) -> None:
        async def scenario(world: World) -> None:
            options = {"delivery_timeout_ms": 310, "request_timeout_ms": 300, "linger_ms": 10}
            producer = await world.producer(**options, on_delivery_error=lambda delivery: None)
            await producer.prepare("four")
            await producer.gather([producer.send("four", b"v", partition=p) for p in range(4)])
            deliveries = [producer.send("four", b"v", partition=p % 4) for p in range(8)]
            if end == "lost answers":
                world.cluster.pause(1)
                results = await producer.gather(deliveries, return_exceptions=True)
            else:
                world.cluster.pause(1)
                await producer.close(0)
                results = [delivery.exception() for delivery in deliveries]
            for number, error in enumerate(results):
                while error is not None:
                    if isinstance(error, KafkaError):
                        assert error.topic_partition == ("four", number % 4), error
                        assert f"four-{number % 4}" in str(error)
                    error = error.__cause__
            assert len({id(error) for error in results}) == 4
            world.cluster.resume(1)
            await producer.close(0)

        simulate(scenario, topics={"four": 4})

    @pytest.mark.parametrize("lost", ["disconnected", "timed out"])
    def test_each_failure_of_a_lost_request_names_its_own_partition(self, lost: str) -> None:
        async def scenario(world: World) -> None:
            options = {"delivery_timeout_ms": 2_000, "request_timeout_ms": 3_000, "linger_ms": 10}
            producer = await world.producer(**options, on_delivery_error=lambda delivery: None)
            await producer.prepare("four")
            await producer.gather([producer.send("four", b"v", partition=p) for p in range(4)])
            world.cluster.pause(1)
            deliveries = [producer.send("four", b"v", partition=p % 4) for p in range(8)]
            engine = producer._require_engine()
            # The deliveries must fail by the lost request, not by the delivery timeout.
            engine.accumulator.stop_expiry()
            await asyncio.sleep(2.5)
            (sender,) = engine.senders.values()
            assert sender.in_flight == 1, "all four partitions must be in one request"
            if lost == "disconnected":
                world.cluster.disconnect()
            results = await producer.gather(deliveries, return_exceptions=True)
            causes = [result.__cause__ for result in results]
            for errors, kind in ((results, DeliveryTimeoutError), (causes, LOST[lost])):
                for number, error in enumerate(errors):
                    assert isinstance(error, kind)
                    assert error.topic_partition == ("four", number % 4)
                    assert f"four-{number % 4}" in str(error)
                assert len({id(error) for error in errors}) == 4
            world.cluster.resume(1)
            await producer.close(0)

        simulate(scenario, topics={"four": 4})
