"""The group as `health()`, `state`, and `start()` of a consumer show it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from group_world import (
    PROTOCOLS,
    Diary,
    every_protocol,
    fill,
    heartbeat_api,
    join_api,
    member,
    part,
    reading,
)
from owned import until
from world import World, simulate

from aiokclient import GroupMember, State, TopicPartition
from aiokclient.errors import (
    BootstrapError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationError,
    IllegalStateError,
    InvalidSessionTimeoutError,
    TopicAuthorizationError,
    UnknownMemberIdError,
)
from aiokclient.protocol import ApiKey


def shown(consumer: Any, *parts: str) -> bool:
    """Return whether the state is DEGRADED for a reason that has all these parts."""
    health = consumer.health()
    return consumer.state is State.DEGRADED and any(
        all(part in reason for part in parts) for reason in health.reasons
    )


async def well(consumer: Any) -> None:
    await until(lambda: consumer.state is State.RUNNING and not consumer.health().reasons, 60)


@every_protocol
def test_start_raises_the_error_of_a_refused_first_join(protocol: str) -> None:
    async def scenario(world: World) -> None:
        consumer = member(world, **PROTOCOLS[protocol])
        with world.cluster.fail(join_api(protocol), GroupAuthorizationError):
            began = world.now
            with pytest.raises(GroupAuthorizationError):
                await consumer.start()
            assert world.now - began < 1
        assert consumer.state is State.NEW
        await consumer.start()  # The permission has been granted meanwhile.
        await consumer.close()

    simulate(scenario)


@every_protocol
def test_start_ends_by_its_deadline_when_the_advertised_address_is_unreachable(
    protocol: str,
) -> None:
    def elsewhere(request: Any, response: Any) -> Any:
        for broker in response.brokers:
            broker.host, broker.port = "nowhere", 9999
        return response

    async def scenario(world: World) -> None:
        options = {**PROTOCOLS[protocol], "default_api_timeout_ms": 5000}
        with world.cluster.alter(ApiKey.METADATA, elsewhere):
            consumer = member(world, **options)
            began = world.now
            with pytest.raises(BootstrapError, match="nowhere:9999"):
                await consumer.start()
            assert world.now - began < 6

    simulate(scenario)


@every_protocol
def test_health_shows_a_refused_join_until_it_succeeds(protocol: str) -> None:
    async def scenario(world: World) -> None:
        diary = Diary()
        async with member(world, diary, name="m", **PROTOCOLS[protocol]) as consumer:
            with world.cluster.fail(heartbeat_api(protocol), GroupAuthorizationError):
                await until(lambda: shown(consumer, "refuses", "GROUP_AUTHORIZATION_FAILED"), 30)
            with pytest.raises(GroupAuthorizationError):
                await consumer.poll(timeout=5)
            await well(consumer)

    simulate(scenario)


def test_health_shows_a_session_timeout_that_the_broker_refuses() -> None:
    async def scenario(world: World) -> None:
        diary = Diary()
        async with member(world, diary) as consumer:
            await diary.until(lambda: diary.owned)
            with world.cluster.fail(ApiKey.JOIN_GROUP, InvalidSessionTimeoutError):
                world.cluster.rebalance("g")
                await until(lambda: shown(consumer, "refuses", "session_timeout_ms is 6000"), 30)
            for _ in range(3):
                try:
                    await consumer.poll(timeout=5)
                except InvalidSessionTimeoutError:
                    continue
            await well(consumer)

    simulate(scenario)


@every_protocol
@pytest.mark.parametrize("automatic", [True, False])
def test_health_shows_a_refused_commit_until_one_succeeds(protocol: str, automatic: bool) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10)
        options = {"auto_commit_interval_ms": 1000, "enable_auto_commit": automatic}
        async with member(world, **PROTOCOLS[protocol], **options) as consumer:
            await consumer.poll(timeout=10, max_records=5)
            with world.cluster.fail(ApiKey.OFFSET_COMMIT, TopicAuthorizationError):
                await consumer.poll(timeout=10, max_records=1)
                if not automatic:
                    with pytest.raises(TopicAuthorizationError):
                        await consumer.commit()
                await until(lambda: shown(consumer, "commits of t-0", "TOPIC_AUTHORIZATION"), 30)
            if not automatic:
                await consumer.commit()
            await well(consumer)

    simulate(scenario)


@pytest.mark.parametrize("protocol", ["eager", "kip848"])
def test_health_names_the_member_for_which_a_rebalance_waits(protocol: str) -> None:
    async def scenario(world: World) -> None:
        fill(world, 10, 2)
        diary, options = Diary(), {**PROTOCOLS[protocol], "max_poll_interval_ms": 300_000}
        async with member(world, diary, client_id="slow", **options) as slow:
            assert await slow.poll(timeout=10)  # The program processes these records for a while.
            await asyncio.sleep(5)
            async with member(world, name="new", **options) as new:
                one = slow.group_metadata().member_id
                held = "t-0, t-1" if protocol == "eager" else "t-"
                await until(
                    lambda: shown(
                        new, "rebalancing for ", " s, waits for", one, "client slow", held
                    ),
                    60,
                )
                # The new member waits for a revocation. The health of the slow member shows it.
                assert shown(slow, "revoked", "t-")
                async with reading(slow):
                    await well(new)
                    await well(slow)

    simulate(scenario, topics={"t": 2})


@every_protocol
def test_health_shows_a_listener_that_does_not_return(protocol: str) -> None:
    class Hangs(Diary):
        async def on_assigned(self, tps: Sequence[TopicPartition]) -> None:  # type: ignore[override]
            await go_on.wait()
            super().on_assigned(tps)

    async def scenario(world: World) -> None:
        diary = Hangs()
        async with member(world, diary, **PROTOCOLS[protocol]) as consumer:
            await until(lambda: shown(consumer, "on_assigned", "has not returned for 5 s"), 30)
            go_on.set()
            await diary.until(lambda: diary.owned)
            await well(consumer)

    go_on = asyncio.Event()
    simulate(scenario)


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("how", ["has failed", "was cancelled"])
def test_health_shows_a_reading_task_that_has_died(grouped: bool, how: str) -> None:
    async def run(consumer: Any) -> None:
        async for record in consumer:
            if record.offset == 3:
                if how == "has failed":
                    raise ValueError("cannot handle it")
                await asyncio.sleep(1000)

    async def scenario(world: World) -> None:
        fill(world, 10)
        consumer = member(world) if grouped else world.consumer("t")
        async with consumer:
            task = asyncio.create_task(run(consumer), name="billing")
            await asyncio.sleep(5)
            if how == "was cancelled":
                assert consumer.state is State.RUNNING
                task.cancel()
            await until(lambda: shown(consumer, "billing", how), 30)
            with pytest.raises((ValueError, asyncio.CancelledError)):
                await task
            assert await consumer.poll(timeout=5)
            await well(consumer)

    simulate(scenario)


@every_protocol
def test_health_shows_for_how_long_a_member_has_been_joining(protocol: str) -> None:
    async def scenario(world: World) -> None:
        with world.cluster.fail(join_api(protocol), CoordinatorLoadInProgressError):
            began = world.now
            consumer = await member(world, **PROTOCOLS[protocol])
            # `start` has returned, while the rebalance continues.
            assert world.now - began == pytest.approx(3.0, abs=0.5)
            await until(lambda: shown(consumer, "rebalancing for 12 s"), 60)
        await well(consumer)
        await consumer.close()

    simulate(scenario)


@every_protocol
def test_health_says_why_a_member_that_finds_no_coordinator_waits(protocol: str) -> None:
    """Health shows that the group has no coordinator, and why.

    With one broker and offsets.topic.replication.factor=3, this is a common mistake of a first
    setup.
    """

    async def scenario(world: World) -> None:
        with world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError):
            consumer = await member(world, **PROTOCOLS[protocol])
            why = "COORDINATOR_NOT_AVAILABLE"
            await until(lambda: shown(consumer, "rebalancing for 5 s, as", why), 10)
            await until(lambda: shown(consumer, "rebalancing for 40 s, as", why), 100)
        await well(consumer)
        await consumer.close()

    simulate(scenario)


@every_protocol
def test_health_shows_that_nothing_is_delivered_when_the_coordinator_is_silent(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        diary = Diary()
        async with member(world, diary, name="m", **PROTOCOLS[protocol]) as consumer:
            await diary.until(lambda: diary.owned)
            part(world, "m")
            await until(lambda: shown(consumer, "coordinator of group g", "and 5 s more"), 90)
            world.network.heal()
            await well(consumer)

    simulate(scenario)


class Leases:
    name = "leases"

    def metadata(self) -> bytes:
        return b""

    def assign(self, members: Any) -> Any:
        return dict.fromkeys(members, b"")


def group_member(world: World) -> GroupMember:
    return GroupMember("w", protocol_type="leases", protocols=[Leases()], **world.options())


def test_health_of_a_group_member_says_that_its_coordinator_is_not_known() -> None:
    async def scenario(world: World) -> None:
        with world.cluster.fail(ApiKey.FIND_COORDINATOR, CoordinatorNotAvailableError):
            member = group_member(world)
            await member.start()
            why = "as its coordinator is not known"
            await until(lambda: shown(member, "group w has been rebalancing for 5 s", why), 30)
        async with await anext(member.generations()):
            assert member.health().reasons == ()
        await member.close()

    simulate(scenario)


def test_health_of_a_group_member_shows_a_rebalance_that_lasts() -> None:
    async def scenario(world: World) -> None:
        async with (
            group_member(world) as one,
            await anext(one.generations()),
            group_member(world) as two,
        ):
            # The body of the first member does not leave its generation.
            await until(lambda: shown(one, "group w has been rebalancing for "), 30)
            await until(lambda: shown(two, "group w has been rebalancing for "), 30)

    simulate(scenario)


def test_a_consumer_that_only_assigns_does_not_ask_about_its_group() -> None:
    async def scenario(world: World) -> None:
        fill(world, 1)
        consumer = world.consumer(group_id="g")
        async with consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert await consumer.get(timeout=5)
            await asyncio.sleep(100)
            assert consumer.state is State.RUNNING
        assert not world.requests(ApiKey.DESCRIBE_GROUPS)

    simulate(scenario)


@pytest.mark.parametrize("name", ["membership", "heartbeats", "positions", "initial offsets"])
def test_a_background_task_that_is_cancelled_from_outside_fails_the_consumer(name: str) -> None:
    async def scenario(world: World) -> None:
        diary = Diary()
        consumer = await member(world, diary)
        await diary.until(lambda: diary.owned)
        (task,) = [t for t in asyncio.all_tasks() if t.get_name().endswith(f": {name}")]
        task.cancel()
        with pytest.raises(IllegalStateError, match=f"{name}.* was cancelled from outside"):
            await consumer.get(timeout=10)
        assert consumer.state is State.FAILED
        assert name in str(consumer.health())
        await consumer.close()

    simulate(scenario)


@every_protocol
def test_a_warning_says_why_a_member_has_lost_its_partitions(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with member(world, **PROTOCOLS[protocol]) as consumer:
            with world.cluster.fail(heartbeat_api(protocol), UnknownMemberIdError, times=1):
                await until(lambda: not consumer.assignment(), 60)
            await until(lambda: bool(consumer.assignment()), 60)

    simulate(scenario)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    (lost,) = [record for record in warnings if getattr(record, "event", "") == "group_lost"]
    assert "client aiokclient, group g: This member lost its partitions" in lost.getMessage()
    why = "UNKNOWN_MEMBER_ID" if protocol == "kip848" else "does not know this member"
    assert why in lost.getMessage()
