"""Logins in virtual time: repeated ones amid requests, refusals, and failing token providers."""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections import Counter
from typing import Any

import pytest
from simulated_logins import LIFETIME_MS, LOGINS, PLAIN, options, run_with_logins, tokens_of
from thinned import in_turns, one_in
from world import World

from aiokclient import (
    AnyBroker,
    Consumer,
    OAuthToken,
    Producer,
    SaslOAuthBearer,
    State,
)
from aiokclient.errors import (
    SaslAuthenticationError,
    TokenProviderError,
)
from aiokclient.events import Authenticated, Disconnected, Rebalanced, TokenRefreshed
from aiokclient.network.connection import BrokerConnection
from aiokclient.protocol import ApiKey, messages


async def drain(events: Any) -> list[Any]:
    return [event async for event in events]


def lost(events: list[Any]) -> list[Any]:
    return [each for each in events if type(each) is Disconnected and each.cause is not None]


@pytest.mark.fault(46)
@pytest.mark.parametrize(("mechanism", "delay_s"), in_turns(2, LOGINS, [0.0, 0.03]))
def test_repeated_logins_amid_requests_lose_and_reorder_nothing(
    mechanism: str, delay_s: float
) -> None:
    count = 500

    async def scenario(world: World) -> None:
        read: dict[int, list[bytes]] = {0: [], 1: []}
        security = LOGINS[mechanism](world)
        async with world.client(**options(world, security)) as client:
            events = client.events()
            producer = Producer(client=client, linger_ms=0)
            consumer = Consumer("t", client=client, group_id="g", auto_offset_reset="earliest")
            async with producer, consumer:
                with world.cluster.delay(ApiKey.PRODUCE, delay_s):
                    for number in range(count):
                        for partition in read:
                            producer.send("t", b"%d" % number, partition=partition)
                        await asyncio.sleep(0.03)
                        for record in await consumer.poll(0.0):
                            read[record.partition].append(record.value)
                    await producer.flush()
                async for record in consumer.until_end():
                    read[record.partition].append(record.value)
        seen = await drain(events)
        assert lost(seen) == []
        assert read == {key: [b"%d" % number for number in range(count)] for key in read}
        again = [event for event in seen if type(event) is Authenticated and event.again]
        assert len(again) > 8
        assert {event.lifetime_ms for event in again} == {LIFETIME_MS}

    run_with_logins(scenario)


@pytest.mark.fault(46)
def test_a_login_is_repeated_at_85_to_95_percent_of_its_lifetime() -> None:
    async def scenario(world: World) -> None:
        async with world.client(**options(world, PLAIN)) as client:
            events = client.events()
            for _ in range(300):
                await client.request(messages.ListGroupsRequest(), AnyBroker())
                await asyncio.sleep(0.2)
        seen = await drain(events)
        times: dict[int, list[int]] = {}
        for event in seen:
            if type(event) is Authenticated:
                times.setdefault(event.broker, []).append(event.time)
        gaps = [b - a for each in times.values() for a, b in itertools.pairwise(each) if a]
        assert len(gaps) > 10
        assert all(0.85 * LIFETIME_MS <= gap <= 0.96 * LIFETIME_MS for gap in gaps)
        assert max(gaps) - min(gaps) > 0.02 * LIFETIME_MS
        assert lost(seen) == []

    run_with_logins(scenario, brokers=1)


@pytest.mark.fault(46, 56)
def test_repeated_logins_on_a_connection_keep_nothing() -> None:
    def kept() -> list[int]:
        found = [each for each in gc.get_objects() if type(each) is BrokerConnection]
        return [len(each._close_listeners) for each in found if not each.closed]

    async def scenario(world: World) -> None:
        async with world.client(**options(world, PLAIN)) as client:
            events = client.events()
            counts = []
            for _ in range(60):
                await client.request(messages.ListGroupsRequest(), AnyBroker())
                await asyncio.sleep(1)
                counts.append(kept())
        again = [each for each in await drain(events) if getattr(each, "again", False)]
        assert len(again) > 10
        assert counts[-1] == counts[0]

    run_with_logins(scenario, brokers=1)


@pytest.mark.fault(46)
def test_a_connection_that_is_only_authenticated_again_is_closed_as_idle() -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN, connections_max_idle_ms=20_000)
        async with world.client(**more) as client:
            await client.request(messages.ListGroupsRequest(), AnyBroker())
            await asyncio.sleep(60)
            assert world.cluster.connections() == 0
            await client.request(messages.ListGroupsRequest(), AnyBroker())

    run_with_logins(scenario)


@pytest.mark.fault(46)
def test_a_refused_repetition_closes_the_connection_with_the_brokers_error() -> None:
    async def scenario(world: World) -> None:
        async with world.client(**options(world, PLAIN)) as client:
            events = client.events()
            refusing = world.cluster.fail(
                ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError, times=1
            )
            with refusing:
                await asyncio.sleep(5)
            await client.request(messages.ListGroupsRequest(), AnyBroker())
            assert client.state is State.RUNNING
        (event,) = lost(await drain(events))
        assert type(event.cause) is SaslAuthenticationError

    run_with_logins(scenario, brokers=1)


@pytest.mark.fault(46)
def test_a_broker_that_does_not_answer_a_repeated_login_is_disconnected() -> None:
    async def scenario(world: World) -> None:
        async with world.client(**options(world, PLAIN)) as client:
            with world.cluster.delay(ApiKey.SASL_HANDSHAKE, 1e6):
                await asyncio.sleep(4.8)
                began = world.now
                request = asyncio.create_task(
                    client.request(messages.ListGroupsRequest(), AnyBroker(), timeout=100)
                )
                await asyncio.sleep(30)
            await request
            assert world.now - began < 60

    run_with_logins(scenario, brokers=1)


@pytest.mark.fault(46)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_keep_their_membership_while_logins_are_repeated(protocol: str) -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN, group_id="g", group_protocol=protocol)
        async with world.consumer("t", **more) as first, world.consumer("t", **more) as second:
            while not (len(first.assignment()) == len(second.assignment()) == 1):
                await first.poll(0.1)
                await second.poll(0.1)
            events = first.events()
            for _ in range(100):
                await first.poll(0.3)
                await second.poll(0.3)
            left_at = world.sim.clock.time_ms()
        seen = [event for event in await drain(events) if event.time < left_at]
        assert lost(seen) == []
        assert [event for event in seen if type(event) is Rebalanced] == []
        assert sum(type(event) is Authenticated for event in seen) > 20

    run_with_logins(scenario)


@pytest.mark.fault(46)
def test_a_join_that_outlasts_a_session_is_followed_by_a_login() -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN, group_id="g")
        async with world.consumer("t", **more) as first:
            world.cluster.produce("t", [b"slow"])
            async for record in first:
                assert record.value == b"slow"
                break
            second = world.consumer("t", **more)
            starting = asyncio.create_task(second.start())
            # The first member is processing a record, so the rebalance waits for that member.
            await asyncio.sleep(3 * LIFETIME_MS / 1000)
            await starting
            events = second.events()
            while not second.assignment():
                await asyncio.gather(first.poll(0.1), second.poll(0.1))
            await second.close()
        assert lost(await drain(events)) == []

    run_with_logins(scenario)


@pytest.mark.fault(46)
def test_transactions_go_on_while_logins_are_repeated() -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN, transactional_id="t-1")
        async with world.producer(**more) as producer:
            events = producer.events()
            for number in range(60):
                async with producer.transaction() as tx:
                    tx.send("t", b"%d" % number, partition=0)
                    await asyncio.sleep(0.5)
        assert lost(await drain(events)) == []
        assert [r.value for r in world.cluster.records("t", 0)] == [b"%d" % n for n in range(60)]

    run_with_logins(scenario)


# -- token providers -----------------------------------------------------------------------------


async def hangs() -> OAuthToken:
    await asyncio.sleep(1e6)
    raise AssertionError


async def fails() -> OAuthToken:
    raise ValueError("no server")


@pytest.mark.fault(47)
@pytest.mark.parametrize("provider", [hangs, fails])
def test_a_token_provider_that_fails_is_tried_until_the_deadline_of_the_start(
    provider: Any,
) -> None:
    async def scenario(world: World) -> None:
        began = world.now
        more = options(world, SaslOAuthBearer(provider), default_api_timeout_ms=7_000)
        client = world.client(**more)
        with pytest.raises(TokenProviderError) as caught:
            await client.start()
        assert world.now - began == pytest.approx(7, abs=0.1)
        assert isinstance(caught.value.__cause__, ValueError) == (provider is fails)
        await client.close()

    run_with_logins(scenario)


@pytest.mark.fault(47)
def test_a_start_that_waits_after_one_that_did_not_raises_the_error_of_the_provider() -> None:
    async def scenario(world: World) -> None:
        more = options(world, SaslOAuthBearer(fails), default_api_timeout_ms=7_000)
        client = world.client(**more)
        await client.start(wait=False)
        with pytest.raises(TokenProviderError):
            await client.start()
        assert client.state is State.STARTING
        await client.close()

    run_with_logins(scenario)


@pytest.mark.fault(47)
def test_a_token_provider_that_recovers_in_time_lets_the_start_succeed() -> None:
    async def scenario(world: World) -> None:
        good, calls = tokens_of(world), 0

        async def provide() -> OAuthToken:
            nonlocal calls
            calls += 1
            return await (fails() if calls < 5 else good())

        async with world.client(**options(world, SaslOAuthBearer(provide))) as client:
            await client.request(messages.ListGroupsRequest(), AnyBroker())
        assert calls == 5

    run_with_logins(scenario)


@pytest.mark.fault(47)
def test_a_client_goes_on_with_its_token_while_the_provider_fails() -> None:
    async def scenario(world: World) -> None:
        good, broken = tokens_of(world, life_s=60), False

        async def provide() -> OAuthToken:
            return await (fails() if broken else good())

        async with world.client(**options(world, SaslOAuthBearer(provide))) as client:
            events = client.events()
            broken = True
            for _ in range(55):
                await client.request(messages.ListGroupsRequest(), AnyBroker())
                await asyncio.sleep(1)
            broken = False
            for _ in range(60):
                await client.request(messages.ListGroupsRequest(), AnyBroker())
                await asyncio.sleep(1)
        seen = await drain(events)
        refreshed = [event for event in seen if type(event) is TokenRefreshed]
        assert any(event.cause is not None and event.expires_at_ms for event in refreshed)
        assert any(event.cause is None for event in refreshed)
        assert lost(seen) == []

    run_with_logins(scenario)


@pytest.mark.fault(47)
@pytest.mark.parametrize("failing", [hangs, fails])
def test_a_call_raises_the_providers_error_after_the_token_has_expired(failing: Any) -> None:
    async def scenario(world: World) -> None:
        good, broken = tokens_of(world, life_s=20), False

        async def provide() -> OAuthToken:
            return await (failing() if broken else good())

        async with world.client(**options(world, SaslOAuthBearer(provide))) as client:
            broken = True
            await asyncio.sleep(60)
            world.cluster.disconnect(1)
            world.cluster.disconnect(2)
            began = world.now
            with pytest.raises(TokenProviderError) as caught:
                await client.request(messages.ListGroupsRequest(), AnyBroker(), timeout=5)
            assert world.now - began == pytest.approx(5, abs=0.1)
            assert isinstance(caught.value.__cause__, ValueError) == (failing is fails)
            broken = False
            await client.request(messages.ListGroupsRequest(), AnyBroker(), timeout=60)

    run_with_logins(scenario)


@pytest.mark.fault(46)
@pytest.mark.parametrize("lifetime_ms", one_in(2, [5, 50, 500, 999, 1_000, 1_100], 1))
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_short_sessions_cause_one_login_a_second_for_each_connection(
    mechanism: str, lifetime_ms: int
) -> None:
    async def scenario(world: World) -> None:
        async with world.producer(**options(world, LOGINS[mechanism](world))) as producer:
            began = world.now
            for number in range(20):
                await producer.send("t", b"%d" % number)
            while world.now < began + 20:
                await asyncio.sleep(0.01)
                producer.send("t", b"more", partition=0)
            await producer.flush()
            seconds = world.now - began
            logins = Counter(each.broker for each in world.requests(ApiKey.SASL_HANDSHAKE))
            for count in logins.values():
                assert count <= 2 * (seconds + 2), "two connections to each broker"
            assert producer.state is State.RUNNING

    run_with_logins(scenario, lifetime_ms=lifetime_ms)
