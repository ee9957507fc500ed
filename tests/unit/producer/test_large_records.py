"""Tests of records that are large for the buffer, and of batches that brokers find too large."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from world import World, simulate

from aiokclient.errors import BufferExhaustedError, RecordTooLargeError
from aiokclient.producer.batching.queue import REQUIRED, BatchLimit
from aiokclient.protocol import ApiKey

MEMORY = 1_000_000
LARGEST = MEMORY - 200


def options(**more: Any) -> dict[str, Any]:
    return {"buffer_memory": MEMORY, "max_request_size": MEMORY, **more}


def produces(world: World) -> int:
    return sum(request.api is ApiKey.PRODUCE for request in world.cluster.requests)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("part", [0.2, 0.26, 0.45, 0.55, 1])
@pytest.mark.parametrize("way", ["send", "send_many", "send_all", "threadsafe"])
def test_any_single_record_is_accepted_when_the_buffer_is_empty(
    known: bool, part: float, way: str
) -> None:
    async def scenario(world: World) -> None:
        value = bytes(int(LARGEST * part))
        async with world.producer(**options()) as producer:
            if known:
                await producer.prepare("t")
            if way == "send":
                delivery = producer.send("t", value)
                await producer.drain()
                await delivery
            elif way == "threadsafe":
                await asyncio.wrap_future(producer.send_threadsafe("t", value))
            elif way == "send_all":
                assert await producer.send_all("t", [value]) == 1
            elif known or part < 0.5:
                await producer.gather(producer.send_many("t", [value]))
            else:
                with pytest.raises(BufferExhaustedError, match="send_all"):
                    producer.send_many("t", [value])
                return
        (record,) = world.cluster.records("t")
        assert record.value == value

    simulate(scenario)


def test_one_large_record_leaves_no_room_for_others_of_its_kind() -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(**options())
        producer.send("missing-1", bytes(LARGEST))
        for topic in ("missing-1", "missing-2"):
            with pytest.raises(BufferExhaustedError):
                producer.send(topic, bytes(LARGEST // 3))
        await producer.prepare("t")
        for _ in range(10):
            assert (await producer.send("t", bytes(LARGEST // 4))).topic == "t"
        await producer.close(0)

    simulate(scenario)


@pytest.mark.parametrize("part", [0.4, 0.6, 1])
def test_large_records_are_sent_while_blocked_partitions_hold_their_half(part: float) -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(**options())
        await producer.prepare("t")
        refused = 0
        while refused < 4:
            try:
                producer.send(f"missing-{refused}", bytes(20_000))
            except BufferExhaustedError:
                refused += 1
        began = world.now
        value = bytes(int(LARGEST * part))
        delivery = producer.send("t", value)
        await producer.drain()
        assert await producer.send_all("t", [value] * 3) == 3
        assert (await delivery).offset == 0
        assert world.now - began < 10
        await producer.close(0)

    simulate(scenario)


def test_batches_grow_again_after_a_burst_of_refusals() -> None:
    async def scenario(world: World) -> None:
        async with world.producer(linger_ms=5) as producer:
            values = [b"%0100d" % number for number in range(2000)]
            with world.cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, times=200):
                await producer.gather(producer.send_many("t", values), return_exceptions=True)
            for last in (False, True):
                before = produces(world)
                await producer.gather([producer.send("t", value) for value in values])
                if last:
                    assert produces(world) - before <= 5
            delivered = [record.value for record in world.cluster.records("t")]
            assert delivered[-2000:] == values

    simulate(scenario)


def test_batches_that_the_topic_never_takes_are_tried_ever_more_rarely() -> None:
    async def scenario(world: World) -> None:
        world.cluster.create_topic("limited", configs={"max.message.bytes": "20000"})
        async with world.producer() as producer:
            for _ in range(60):
                await producer.gather([producer.send("limited", b"x" * 1000) for _ in range(200)])
        sizes = [
            len(part.records)
            for request in world.cluster.requests
            if request.api is ApiKey.PRODUCE
            for part in request.message.topic_data[0].partition_data
        ]
        assert len(world.cluster.records("limited")) == 60 * 200
        refused = [index for index, size in enumerate(sizes) if size > 20_000]
        assert len(refused) < len(sizes) / 20

    simulate(scenario)


def test_lowered_follows_the_batch_limit() -> None:
    limit = BatchLimit(1_000)
    assert not limit.lowered
    limit.halve_limit(900)
    assert (limit.size, limit.lowered) == (450, True)
    limit.halve_limit(4_000)
    assert (limit.size, limit.lowered) == (450, True)
    for _ in range(REQUIRED):
        assert limit.lowered
        limit.note_written(450)
    assert (limit.size, limit.lowered) == (1_000, False)
    limit.halve_limit(4_000)
    assert not limit.lowered, "the limit for the parts is larger than the usual one"
    assert not isinstance(vars(BatchLimit)["lowered"], property), (
        "it must be a plain attribute, because it is read for each batch"
    )
