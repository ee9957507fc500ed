"""Tests of the size of responses, which adapts to how long the program waits for them."""

from typing import Any

import pytest
from world import World, simulate

from aiokclient import Consumer
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.fetching.responses import (
    EARLY_RESPONSES,
    FIRST_BYTES,
    GROWTH,
    LONG_WAIT_S,
    ResponseSize,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing.simulation.network import Weather

MIB = 1024 * 1024
FAR = Weather(latency_s=(0.025, 0.025))
"""A network with a round trip of 50 ms."""
NEAR = Weather(latency_s=(0.0001, 0.0001))


def make_size(**options: Any) -> ResponseSize:
    return ResponseSize(ConsumerConfig(bootstrap_servers="b:1", **options))


def fill(world: World, *, partitions: int, records: int, size: int = 1_000_000) -> None:
    for partition in range(partitions):
        for _ in range(records):
            world.cluster.produce("t", [bytes(size)], partition=partition)


async def read(consumer: Consumer[Any, Any], count: int) -> None:
    """Read this many records."""
    async for _ in consumer:
        count -= 1
        if not count:
            return


def requested(world: World) -> list[int]:
    """Return the sizes that were requested."""
    return [request.message.max_bytes for request in world.requests(ApiKey.FETCH)]


def test_the_size_grows_up_to_its_limit_while_the_program_waits_for_full_responses() -> None:
    size = make_size()
    sizes = []
    for _ in range(4):
        sizes.append(size.max_bytes)
        size.on_response(size.max_bytes - 1, LONG_WAIT_S)
    assert sizes == [2 * MIB, 8 * MIB, 32 * MIB, 50 * MIB]
    size.on_response(size.max_bytes, LONG_WAIT_S)
    assert size.max_bytes == 50 * MIB


def test_the_size_stays_if_the_wait_is_short_or_the_response_is_not_full() -> None:
    size = make_size()
    size.on_response(FIRST_BYTES, LONG_WAIT_S / 2)
    size.on_response(FIRST_BYTES // 2 - 1, 10.0)
    assert size.max_bytes == FIRST_BYTES


def test_the_size_shrinks_after_many_early_responses_but_not_below_the_first() -> None:
    size = make_size()
    size.on_response(FIRST_BYTES, LONG_WAIT_S)
    for _ in range(EARLY_RESPONSES - 1):
        size.on_response(FIRST_BYTES, 0.0)
    size.on_response(0, 0.001)  # A wait that is short begins the count again.
    for _ in range(EARLY_RESPONSES - 1):
        size.on_response(FIRST_BYTES, 0.0)
    assert size.max_bytes == GROWTH * FIRST_BYTES
    size.on_response(FIRST_BYTES, 0.0)
    assert size.max_bytes == GROWTH * FIRST_BYTES // 2
    for _ in range(3 * EARLY_RESPONSES):
        size.on_response(FIRST_BYTES, 0.0)
    assert size.max_bytes == FIRST_BYTES


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"fetch_max_bytes": 300_000}, 300_000, 300_000),
        ({"fetch_max_bytes": 3 * MIB}, 2 * MIB, 3 * MIB),
        ({"fetch_max_bytes": 0}, 0, 0),
        ({"fetch_min_bytes": 5 * MIB}, 5 * MIB, 50 * MIB),
        ({"fetch_min_bytes": 5 * MIB, "fetch_max_bytes": 3 * MIB}, 3 * MIB, 3 * MIB),
    ],
)
def test_the_size_stays_within_the_options(options: Any, first: int, last: int) -> None:
    """A broker answers with less than `fetch_min_bytes` if it may not return as much."""
    size = make_size(**options)
    assert size.max_bytes == first
    for _ in range(4):
        size.on_response(size.max_bytes, 1.0)
    assert size.max_bytes == last


def test_responses_over_a_long_way_grow_to_what_all_partitions_may_return() -> None:
    """After two round trips, a response has as much as `fetch_max_bytes` permits."""

    async def scenario(world: World) -> None:
        fill(world, partitions=6, records=6)
        async with world.consumer("t") as consumer:
            await read(consumer, 36)
            sizes = requested(world)
            assert sizes[:2] == [2 * MIB, 8 * MIB]
            # 2 records at first, then 6 with each response, which is one for each partition.
            assert len(sizes) <= 1 + 6 + 2

    simulate(scenario, topics={"t": 6}, weather=FAR)


def test_responses_over_a_short_way_stay_small() -> None:
    async def scenario(world: World) -> None:
        fill(world, partitions=6, records=6)
        async with world.consumer("t") as consumer:
            await read(consumer, 36)
            assert set(requested(world)) == {FIRST_BYTES}

    simulate(scenario, topics={"t": 6}, weather=NEAR)


def test_a_batch_above_the_first_size_is_delivered() -> None:
    async def scenario(world: World) -> None:
        fill(world, partitions=1, records=2, size=3 * MIB)
        async with world.consumer("t", isolation_level="read_committed") as consumer:
            await read(consumer, 2)

    simulate(scenario, weather=NEAR, configs={"message.max.bytes": str(5 * MIB)})


@pytest.mark.parametrize("slots", ["0", "1000"])
def test_all_partitions_are_read_in_turn_if_a_response_has_only_two(slots: str) -> None:
    """Without a fetch session, a broker always begins with the first partitions of the request."""

    async def scenario(world: World) -> None:
        fill(world, partitions=6, records=3)
        partitions: list[int] = []
        async with world.consumer("t") as consumer:
            async for record in consumer:
                partitions.append(record.partition)
                if len(partitions) == 18:
                    break
        for begin in (0, 6, 12):
            assert sorted(partitions[begin : begin + 6]) == list(range(6))

    simulate(
        scenario,
        topics={"t": 6},
        weather=NEAR,
        configs={"max.incremental.fetch.session.cache.slots": slots},
    )
