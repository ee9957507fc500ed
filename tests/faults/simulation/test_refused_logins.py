"""Logins that are refused, in virtual time: starts raise, and running clients repeat them."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest
from simulated_logins import LIFETIME_MS, LOGINS, PLAIN, options, run_with_logins, tokens_of
from world import World

from aiokclient import (
    AnyBroker,
    OAuthToken,
    Producer,
    SaslOAuthBearer,
    SaslPlain,
    State,
    TopicPartition,
)
from aiokclient.errors import (
    ApiTimeoutError,
    KafkaError,
    SaslAuthenticationError,
)
from aiokclient.log.kept_errors import chain
from aiokclient.protocol import ApiKey, messages


@pytest.mark.fault(48)
def test_wrong_credentials_end_the_start_at_once() -> None:
    async def scenario(world: World) -> None:
        began = world.now
        client = world.client(**options(world, SaslPlain("alice", "wrong")))
        with pytest.raises(SaslAuthenticationError, match="user 'alice' with the mechanism PLAIN"):
            await client.start()
        assert world.now - began < 1
        await client.close()

    run_with_logins(scenario)


@pytest.mark.fault(48)
def test_wrong_credentials_end_the_start_although_another_server_is_down() -> None:
    async def scenario(world: World) -> None:
        world.cluster.stop(2)
        began = world.now
        client = world.client(**options(world, SaslPlain("alice", "wrong")))
        with pytest.raises(SaslAuthenticationError):
            await client.start()
        assert world.now - began < 3
        await client.close()

    run_with_logins(scenario)


@pytest.mark.fault(48)
def test_wrong_credentials_fail_a_start_that_does_not_wait() -> None:
    async def scenario(world: World) -> None:
        client = world.client(**options(world, SaslPlain("alice", "wrong")))
        await client.start(wait=False)
        await asyncio.sleep(2)
        assert client.state is State.FAILED
        with pytest.raises(SaslAuthenticationError):
            await client.request(messages.ListGroupsRequest(), AnyBroker())
        await client.close()

    run_with_logins(scenario)


def refuse_logins(world: World) -> contextlib.AbstractContextManager[Any]:
    """Cut all connections, and refuse each login from now on."""
    fault = world.cluster.fail(ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError)
    world.cluster.disconnect()
    return fault


async def recovered(*users: Any) -> None:
    """Wait until all clients are RUNNING."""
    for _ in range(50):
        if all(user.state is State.RUNNING for user in users):
            return
        await asyncio.sleep(0.1)
    raise AssertionError([user.health() for user in users])


@pytest.mark.fault(48)
@pytest.mark.parametrize("mechanism", LOGINS)
def test_a_client_whose_logins_are_refused_is_degraded_and_recovers(mechanism: str) -> None:
    async def scenario(world: World) -> None:
        more = options(world, LOGINS[mechanism](world))
        async with world.client(**more) as client, world.producer(**more) as producer:
            await producer.send("t", b"before")
            with refuse_logins(world):
                await asyncio.sleep(1)
                delivery = producer.send("t", b"during")
                for user in (client, producer):
                    assert user.state is State.DEGRADED
                    assert any("refuses the login" in why for why in user.health().reasons)
                before = len(world.requests(ApiKey.SASL_HANDSHAKE))
                await asyncio.sleep(60)
                after = len(world.requests(ApiKey.SASL_HANDSHAKE))
                assert 60 < after - before < 5 * 65, "about one attempt a second and broker"
                with pytest.raises(ApiTimeoutError) as caught:
                    await client.request(messages.ListGroupsRequest(), AnyBroker(), timeout=5)
                assert isinstance(caught.value.__cause__, SaslAuthenticationError)
            await delivery
            await client.request(messages.ListGroupsRequest(), AnyBroker())
            await recovered(client, producer)
        assert [r.value for r in world.cluster.records("t")] == [b"before", b"during"]

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(48)
def test_calls_fail_at_their_deadlines_with_the_refused_login_as_the_cause() -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN, default_api_timeout_ms=6_000, request_timeout_ms=3_000)
        produce = {**more, "delivery_timeout_ms": 7_000, "max_block_ms": 6_000}
        async with (
            world.client(**more) as client,
            world.producer(**produce) as producer,
            world.producer(transactional_id="x", **produce) as writer,
            world.consumer("t", group_id="g", **more) as consumer,
        ):
            await producer.send("t", b"1")
            record = (await consumer.poll(10))[0]
            await writer.begin_transaction()
            await writer.send("t", b"2")
            with refuse_logins(world):
                await asyncio.sleep(2)

                async def deliver() -> None:
                    await producer.send("t", b"3")

                async def describe() -> None:
                    await producer.prepare("t2")

                calls = {
                    "request": client.request(messages.ListGroupsRequest(), AnyBroker()),
                    "deliver": deliver(),
                    "unknown topic": describe(),
                    "commit": consumer.commit(record),
                    "committed": consumer.committed([TopicPartition("t", 0)]),
                    "offsets": consumer.end_offsets([TopicPartition("t", 0)]),
                    "transaction": writer.commit_transaction(),
                }
                began = world.now

                async def timed(call: Any) -> tuple[Any, float]:
                    return (*await asyncio.gather(call, return_exceptions=True), world.now - began)

                outcomes = await asyncio.gather(*map(timed, calls.values()))
                for name, (error, seconds) in zip(calls, outcomes, strict=True):
                    assert isinstance(error, KafkaError), (name, error)
                    assert 5 < seconds < 15, (name, seconds, error)
                    kinds = [type(each) for each in chain(error)]
                    assert SaslAuthenticationError in kinds, (name, error, kinds)
            for user in (client, producer, writer, consumer):
                assert user.state is not State.FAILED
            await writer.abort_transaction()
            async with writer.transaction() as tx:
                tx.send("t", b"4")
            await consumer.commit(record)

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(48)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_group_members_go_on_after_their_logins_were_refused(protocol: str) -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN)
        group = {"group_id": "g", "group_protocol": protocol}
        async with (
            world.producer(**more) as producer,
            world.consumer("t", **group, **more) as first,
            world.consumer("t", **group, **more) as second,
        ):
            with refuse_logins(world):
                await asyncio.sleep(90)  # Longer than a session.
                for member in (first, second):
                    assert member.state is State.DEGRADED
                    assert await member.poll(0.1) == []
            for number in range(20):
                producer.send("t", b"%d" % number)
            seen: set[bytes] = set()
            while len(seen) < 20:
                seen.update(r.value for r in await first.poll(0.5))
                seen.update(r.value for r in await second.poll(0.5))
            # A member with records in progress gives no partition away until its next poll.
            for member in (second, first):
                await member.poll(0.1)

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(48)
def test_a_shared_client_goes_on_after_its_logins_were_refused() -> None:
    async def scenario(world: World) -> None:
        async with (
            world.client(**options(world, PLAIN, default_api_timeout_ms=5_000)) as client,
            Producer(client=client) as producer,
        ):
            await producer.send("t", b"1")
            with refuse_logins(world):
                await asyncio.sleep(20)
                assert client.state is producer.state is State.DEGRADED
                began = world.now
                late = Producer(client=client)
                with pytest.raises(SaslAuthenticationError):
                    await late.start()
                assert world.now - began < 2, "a start raises at once"
            await producer.send("t", b"2")
            async with Producer(client=client) as other:
                await other.send("t", b"3")

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(48)
@pytest.mark.parametrize("role", ["group", "transaction"])
def test_a_start_raises_at_once_when_its_coordinator_refuses_the_login(role: str) -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN)
        async with world.client(**more) as client:
            kind = 0 if role == "group" else 1
            request = messages.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            found = await client.request(request, AnyBroker())
            broker = found.coordinators[0].node_id
        with world.cluster.fail(ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError, broker=broker):
            began = world.now
            user: Any = (
                world.consumer("t", group_id="x", **more)
                if role == "group"
                else world.producer(transactional_id="x", **more)
            )
            with pytest.raises(SaslAuthenticationError):
                await user.start()
            assert world.now - began < 5
            await user.close()

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(46, 48)
def test_a_refused_repetition_of_a_login_does_not_end_the_client() -> None:
    async def scenario(world: World) -> None:
        more = options(world, PLAIN)
        async with world.producer(**more) as producer:
            await producer.send("t", b"1")
            with world.cluster.fail(ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError):
                await asyncio.sleep(3 * LIFETIME_MS / 1000)
                assert producer.state is State.DEGRADED
                assert any("refuses the login" in why for why in producer.health().reasons)
                delivery = producer.send("t", b"2")
                await asyncio.sleep(1)
            await delivery
            await recovered(producer)

    run_with_logins(scenario)


@pytest.mark.fault(48)
@pytest.mark.parametrize("lifetime_ms", [0, LIFETIME_MS])
def test_a_refused_token_is_dropped_and_the_provider_asked_again(lifetime_ms: int) -> None:
    async def scenario(world: World) -> None:
        good, calls = tokens_of(world), []

        async def provide() -> OAuthToken:
            calls.append(world.now)
            return await good()

        revoked: set[bytes] = set()

        def is_revoked(request: Any) -> bool:
            return bytes(request.auth_bytes) in revoked

        async with world.producer(**options(world, SaslOAuthBearer(provide))) as producer:
            await producer.send("t", b"1")
            assert len(calls) == 1
            revoked.update(
                bytes(each.message.auth_bytes) for each in world.requests(ApiKey.SASL_AUTHENTICATE)
            )
            with world.cluster.fail(
                ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError, where=is_revoked
            ):
                await asyncio.sleep(1)
                if not lifetime_ms:
                    world.cluster.disconnect()
                await asyncio.sleep(2 * LIFETIME_MS / 1000)
                await producer.send("t", b"2")
                assert len(calls) == 2
                assert producer.state is State.RUNNING

    run_with_logins(scenario, lifetime_ms=lifetime_ms)


@pytest.mark.fault(48)
def test_a_provider_whose_tokens_are_all_refused_is_asked_about_once_a_second() -> None:
    async def scenario(world: World) -> None:
        good, calls = tokens_of(world), []

        async def provide() -> OAuthToken:
            calls.append(world.now)
            return await good()

        async with world.client(**options(world, SaslOAuthBearer(provide))) as client:
            with refuse_logins(world):
                await asyncio.sleep(60)
                assert 20 < len(calls) < 100
                with pytest.raises(ApiTimeoutError) as caught:
                    await client.request(messages.ListGroupsRequest(), AnyBroker(), timeout=5)
                assert isinstance(caught.value.__cause__, SaslAuthenticationError)
            await client.request(messages.ListGroupsRequest(), AnyBroker())
            await recovered(client)

    run_with_logins(scenario, lifetime_ms=0)


@pytest.mark.fault(48)
def test_a_client_that_one_of_two_brokers_refuses_goes_on() -> None:
    async def scenario(world: World) -> None:
        async with world.client(**options(world, PLAIN)) as client:
            with world.cluster.fail(ApiKey.SASL_AUTHENTICATE, SaslAuthenticationError, broker=2):
                world.cluster.disconnect(1)
                world.cluster.disconnect(2)
                for _ in range(60):
                    await client.request(messages.ListGroupsRequest(), AnyBroker())
                    await asyncio.sleep(1)
                assert client.state is not State.FAILED
            assert 0 < Counter(r.broker for r in world.requests(ApiKey.SASL_AUTHENTICATE))[2] < 100

    run_with_logins(scenario, lifetime_ms=0)
