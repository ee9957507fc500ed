"""Tests of events: which reader gets which events, in what order, and what slow readers miss."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, GroupMember, Producer, SaslScram, State
from aiokclient.errors import ClosedError, DisconnectedError, SaslAuthenticationError
from aiokclient.events import (
    Connected,
    Disconnected,
    Event,
    Failed,
    LeaderMoved,
    Rebalanced,
    Throttled,
)
from aiokclient.network.event_hub import KEPT, EventHub, EventReader
from aiokclient.protocol.api import ApiKey
from aiokclient.testing import BrokerListener, EmbeddedCluster
from aiokclient.types import TopicPartition


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(brokers=2, topics={"orders": 2}) as cluster:
        yield cluster


async def first(reader: EventReader, kind: type[Event]) -> Any:
    """Return the next event of a kind."""
    async with asyncio.timeout(20):
        async for event in reader:
            if isinstance(event, kind):
                return event
    raise AssertionError(f"The reader ended without a {kind.__name__} event.")


async def rest(reader: EventReader) -> list[Event]:
    """Return the events until the end of the reader."""
    async with asyncio.timeout(20):
        return [event async for event in reader]


async def test_a_reader_from_before_the_start_gets_the_first_connection(
    cluster: EmbeddedCluster,
) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    reader = producer.events()
    async with producer:
        event = await first(reader, Connected)
        assert event.address in cluster.bootstrap_servers.split(",")
        assert event.cause is None
        assert event.time > 1_700_000_000_000
    assert all(isinstance(event, Connected | Disconnected) for event in await rest(reader))


async def test_a_lost_connection_has_its_cause_and_its_broker(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v", partition=0)
        leader = cluster.leader("orders", 0)
        reader = producer.events()
        cluster.stop(leader)
        lost = await first(reader, Disconnected)
        assert isinstance(lost.cause, DisconnectedError)
        assert lost.connected


async def test_a_refused_attempt_to_connect_is_told_apart(cluster: EmbeddedCluster) -> None:
    cluster.stop(1)
    cluster.stop(2)
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, default_api_timeout_ms=300)
    reader = producer.events()
    with pytest.raises(Exception, match="tried"):
        await producer.start()
    refused = await first(reader, Disconnected)
    assert not refused.connected
    assert isinstance(refused.cause, DisconnectedError)
    assert refused.broker is None


async def test_a_moved_leader_names_both_brokers(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send("orders", b"v", partition=0)
        old = cluster.leader("orders", 0)
        reader = producer.events()
        cluster.move_leader("orders", 0, to=3 - old)
        await producer.send("orders", b"w", partition=0)
        moved = await first(reader, LeaderMoved)
        assert (moved.topic, moved.partition) == ("orders", 0)
        assert (moved.old_broker, moved.broker) == (old, 3 - old)


async def test_a_quota_is_told_with_its_time(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        reader = producer.events()
        with cluster.throttle(ApiKey.PRODUCE, 0.02):
            await producer.send("orders", b"v")
        throttled = await first(reader, Throttled)
        assert (throttled.api, throttled.throttle_ms) == ("Produce", 20)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_tells_its_rebalances(cluster: EmbeddedCluster, protocol: str) -> None:
    both = frozenset({TopicPartition("orders", 0), TopicPartition("orders", 1)})
    consumer = Consumer(
        "orders",
        group_id="readers",
        group_protocol=protocol,
        bootstrap_servers=cluster.bootstrap_servers,
    )
    reader = consumer.events()
    async with consumer:
        rebalanced = await first(reader, Rebalanced)
        assert rebalanced.group_id == "readers"
        assert (rebalanced.assigned, rebalanced.revoked, rebalanced.lost) == (
            both,
            frozenset(),
            frozenset(),
        )
    ended = [event for event in await rest(reader) if isinstance(event, Rebalanced)]
    assert [event.revoked for event in ended] == [both]


async def test_a_group_member_tells_its_generations(cluster: EmbeddedCluster) -> None:
    class Protocol:
        name = "any"

        def metadata(self) -> bytes:
            return b""

        def assign(self, members: Any) -> Any:
            return dict.fromkeys(members, b"")

    member = GroupMember(
        "workers",
        protocol_type="work",
        protocols=[Protocol()],
        bootstrap_servers=cluster.bootstrap_servers,
    )
    reader = member.events()
    async with member:
        assert (await first(reader, Rebalanced)).group_id == "workers"


async def test_children_of_a_client_get_their_own_events_and_the_shared_ones(
    cluster: EmbeddedCluster,
) -> None:
    async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
        every, admin = client.events(), Admin(client=client)
        async with admin, Producer(client=client):
            other = admin.events()
            consumer = Consumer("orders", group_id="readers", client=client)
            own = consumer.events()
            async with consumer:
                assert await first(own, Rebalanced) == await first(every, Rebalanced)
            with cluster.throttle(ApiKey.METADATA, 0.01):
                await admin.list_topics()
            assert await first(every, Throttled) == await first(other, Throttled)
            assert await rest(own)
        assert not [event for event in await rest(other) if isinstance(event, Rebalanced)]


async def test_a_failed_client_says_why(cluster: EmbeddedCluster) -> None:
    async with Consumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
    ) as consumer:
        reader = consumer.events()
        error = RuntimeError("a bug")
        consumer._fail(error)
        assert (await first(reader, Failed)).cause is error
        with pytest.raises(RuntimeError):
            await consumer.poll()


async def test_a_reader_ends_with_its_client(cluster: EmbeddedCluster) -> None:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers)
    reader = producer.events()
    waiting = asyncio.create_task(rest(reader))
    async with producer:
        pass
    await waiting
    with pytest.raises(ClosedError):
        producer.events()
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_a_cancelled_wait_loses_no_event(cluster: EmbeddedCluster) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        reader = producer.events()
        waiting = asyncio.ensure_future(anext(reader))
        await asyncio.sleep(0)
        producer._events.emit("Failed", cause=None)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert isinstance(await anext(reader), Failed)


async def test_several_tasks_of_one_reader_share_its_events_and_all_end(
    cluster: EmbeddedCluster,
) -> None:
    async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        reader = producer.events()
        tasks = [asyncio.create_task(rest(reader)) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(5):
            producer._events.emit("Failed", broker=number)
        await asyncio.sleep(0)
    shared = [event for found in await asyncio.gather(*tasks) for event in found]
    failed = [event.broker for event in shared if isinstance(event, Failed)]
    assert sorted(map(str, failed)) == list("01234")


class Frozen:
    """A clock that stands still."""

    rng: Any = None

    def monotonic(self) -> float:
        return 0.0

    def time_ms(self) -> int:
        return 5


async def test_a_slow_reader_loses_the_oldest_events_and_knows_it() -> None:
    hub = EventHub(Frozen())
    slow, quick = hub.open_reader(), hub.open_reader()
    for number in range(KEPT + 3):
        hub.emit("Failed", broker=number)
        assert (await anext(quick)).broker == number
    assert (slow.dropped, quick.dropped) == (3, 0)
    assert (await anext(slow)).broker == 3


async def test_a_reader_that_nobody_holds_is_forgotten() -> None:
    hub = EventHub(Frozen())
    reader = hub.open_reader()
    assert hub.heard
    await reader.aclose()
    hub.emit("Failed")
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    del reader
    assert not hub.heard


async def test_bad_credentials_fail_a_client_that_did_not_wait_for_its_cluster() -> None:
    listener = BrokerListener(mechanisms=("SCRAM-SHA-512",), users={"alice": "secret"})
    async with EmbeddedCluster(listeners={"LOGIN": listener}) as cluster:
        producer = Producer(
            bootstrap_servers=cluster.bootstrap_servers_for("LOGIN"),
            security=SaslScram("alice", "wrong"),
        )
        reader = producer.events()
        await producer.start(wait=False)
        delivery = producer.send("orders", b"v")
        failed = await first(reader, Failed)
        assert isinstance(failed.cause, SaslAuthenticationError)
        assert producer.state is State.FAILED
        with pytest.raises(SaslAuthenticationError):
            await delivery
        with pytest.raises(SaslAuthenticationError):
            await producer.flush()
        await producer.close()
