"""`shutdown_timeout_ms` bounds leaving a client and closing it, whatever is pending."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
from world import World, simulate

from aiokclient import Admin, Consumer, GroupMember, Producer
from aiokclient.errors import ClosedError, DeliveryErrors

BOUND_S = 3.0
SLACK_S = 1.0
OPTIONS: dict[str, Any] = {"shutdown_timeout_ms": BOUND_S * 1000}


class Plain:
    name = "plain"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        return members


async def left(client: Any, how: str) -> None:
    """End the client in one of the ways of a program."""
    if how == "close":
        await client.close()
    elif how == "close with a longer timeout":
        await client.close(60)
    elif how == "leave":
        await client.__aexit__(None, None, None)
    elif how == "error":
        error = ValueError("of the body")
        await client.__aexit__(type(error), error, None)
    else:
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(1)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await closing


WAYS = ["close", "close with a longer timeout", "leave", "error", "cancelled"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dead", ["paused", "unknown topic"])
def test_producer_with_a_pending_record_ends_in_time(how: str, shared: bool, dead: str) -> None:
    async def scenario(world: World) -> None:
        options = {**OPTIONS, "close_timeout_ms": 10_000, "on_delivery_error": id}
        async with world.client() as client:
            producer = Producer(client=client, **options) if shared else world.producer(**options)
            await producer.start()
            await producer.prepare("t")
            if dead == "paused":
                world.cluster.pause(1)
            deliveries = [producer.send("t" if dead == "paused" else "nowhere", b"v")]
            await asyncio.sleep(0.1)
            began = world.now
            try:
                await left(producer, how)
            except DeliveryErrors:
                assert how == "leave"
            assert world.now - began <= BOUND_S + SLACK_S
            for delivery in deliveries:
                assert isinstance(delivery.exception(), ClosedError)
            world.cluster.resume(1)

    simulate(scenario)


@pytest.mark.parametrize("how", WAYS)
def test_client_with_children_ends_in_time(how: str) -> None:
    async def scenario(world: World) -> None:
        client = world.client(close_timeout_ms=10_000, **OPTIONS)
        await client.start()
        producers = [await Producer(client=client, on_delivery_error=id) for _ in range(3)]
        consumer = await Consumer("t", client=client, group_id="g")
        await consumer.poll(timeout=5)
        admin = await Admin(client=client)
        for producer in producers:
            await producer.prepare("t")
        world.cluster.pause(1)
        deliveries = [producer.send("t", b"v") for producer in producers]
        listing = asyncio.create_task(admin.list_topics())
        await asyncio.sleep(0.1)
        began = world.now
        try:
            await left(client, how)
        except (DeliveryErrors, BaseExceptionGroup):
            assert how == "leave"
        assert world.now - began <= BOUND_S + SLACK_S
        assert {type(each.exception()) for each in deliveries} == {ClosedError}
        with pytest.raises(ClosedError):
            await listing
        world.cluster.resume(1)

    simulate(scenario)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("kind", ["consumer", "consumer protocol", "member", "admin", "txn"])
def test_any_client_of_a_dead_broker_ends_in_time(kind: str, how: str) -> None:
    async def scenario(world: World) -> None:
        options = {**OPTIONS, "close_timeout_ms": 60_000}
        client: Any
        if kind.startswith("consumer"):
            if kind != "consumer":
                options["group_protocol"] = "consumer"
            async with world.producer() as producer:
                await producer.send("t", b"v")
            client = await world.consumer("t", group_id="g", **options)
            assert await client.get(timeout=20)
        elif kind == "member":
            own = world.options(**options)
            client = await GroupMember("m", protocol_type="plain", protocols=[Plain()], **own)
            await anext(client.generations())
        elif kind == "admin":
            client = await Admin(**world.options(**options))
            await client.list_topics()
        else:
            client = await world.producer(transactional_id="x", on_delivery_error=id, **options)
            await client.begin_transaction()
            await client.send("t", b"v")
        world.cluster.pause(1)
        if kind == "txn":
            client.send("t", b"v")
        began = world.now
        try:
            await left(client, how)
        except (DeliveryErrors, ClosedError):
            assert how == "leave"
        assert world.now - began <= BOUND_S + SLACK_S
        world.cluster.resume(1)

    simulate(scenario)


def test_without_shutdown_timeout_ms_a_producer_flushes_for_delivery_timeout_ms() -> None:
    async def scenario(world: World) -> None:
        producer = await world.producer(delivery_timeout_ms=20_000, on_delivery_error=id)
        await producer.prepare("t")
        world.cluster.pause(1)
        delivery = producer.send("t", b"v")
        began = world.now
        await producer.close()
        assert 19 < world.now - began < 26
        assert not isinstance(delivery.exception(), ClosedError)
        world.cluster.resume(1)

    simulate(scenario)
