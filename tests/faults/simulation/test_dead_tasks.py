"""If a background task dies of a bug, calls that wait for it raise the error of the client."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest
from group_world import member
from world import World, simulate

from aiokclient import Admin, Client, Consumer, Coordinator, Leader, State, TopicPartition
from aiokclient.cluster.metadata.updater import MetadataUpdater
from aiokclient.cluster.requests.routing import CoordinatorLocator
from aiokclient.cluster.targets import Broker
from aiokclient.errors import (
    ApiTimeoutError,
    CoordinatorLoadInProgressError,
    KafkaError,
    NotLeaderOrFollowerError,
)
from aiokclient.network import pool
from aiokclient.network.pool import ConnectionPool
from aiokclient.patterns import single_writer
from aiokclient.patterns.writer import Candidate
from aiokclient.producer.batching.producer_ids import ProducerIds
from aiokclient.protocol import ApiKey
from aiokclient.protocol.messages import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    MetadataRequest,
)

T0 = TopicPartition("t", 0)
BY_HAND = TopicPartition("hand", 0)
CONTROL = pool.Purpose.CONTROL
LIMIT_S = 5.0
"""Virtual seconds within which the calls must end. Their own timeouts are longer: a minute."""


class BugError(Exception):
    pass


def bug(*_: Any, **__: Any) -> Any:
    raise BugError("a bug")


async def end_with_the_bug(world: World, *calls: Awaitable[Any]) -> None:
    began = world.now
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BugError] * len(calls)
    assert world.now - began < LIMIT_S


@pytest.mark.parametrize(
    "step",
    ["_take_waiters", "_merge_answer", "_note_topics", "_install_snapshot", "_serve_waiter"],
)
def test_calls_that_wait_for_metadata_end_when_its_task_dies(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        await client.start()
        admin, consumer = Admin(client=client), Consumer("t", client=client)
        await admin.start()
        await consumer.start()
        monkeypatch.setattr(MetadataUpdater, step, bug)
        updater = client.cluster.updater
        await end_with_the_bug(
            world,
            updater.refresh(["t"], timeout=60),
            updater.refresh(timeout=60),
            admin.list_groups(),
            consumer.partitions_for("t"),
            client.request(ListOffsetsRequest(), to=Leader("missing", 0)),
        )
        monkeypatch.undo()
        await end_with_the_bug(world, updater.refresh(timeout=60))
        for one in (client, admin, consumer):
            assert one.state is State.FAILED
            with pytest.raises(BugError):
                one.metrics()
        await client.close()
        died = [record for record in caplog.records if getattr(record, "event", "") == "task_died"]
        assert len(died) == 1, "the dead task must be logged once"

    simulate(scenario)


def test_requests_are_not_repeated_when_the_metadata_task_has_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        consumer = Consumer("t", client=client)
        await client.start()
        await consumer.start()
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        with (
            world.cluster.fail(ApiKey.LIST_OFFSETS, NotLeaderOrFollowerError),
            world.cluster.fail(ApiKey.HEARTBEAT, CoordinatorLoadInProgressError),
        ):
            monkeypatch.setattr(MetadataUpdater, "_note_topics", bug)
            await end_with_the_bug(
                world,
                consumer.end_offsets([T0]),
                client.request(beat, to=Coordinator("group", "g")),
                client.send(beat, to=Coordinator("group", "g"))._wait_for_result(),
            )
        monkeypatch.undo()
        await client.close()

    simulate(scenario)


@pytest.mark.parametrize("where", ["open_connection", "mark_reachable"])
def test_calls_that_wait_for_a_connection_end_when_its_task_dies(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        client = world.client()
        await client.start()
        owner = pool if where == "open_connection" else ConnectionPool
        monkeypatch.setattr(owner, where, bug)
        others = [node for node in (1, 2, 3) if not client.cluster.find_connection(node, CONTROL)]
        request = MetadataRequest(topics=[])
        calls = [client.request(request, to=Broker(node)) for node in others * 2]
        await end_with_the_bug(world, *calls)
        assert client.state is State.FAILED
        monkeypatch.undo()
        await client.close()

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("where", ["open_connection", "mark_reachable"])
def test_start_ends_when_the_task_that_connects_dies(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        owner = pool if where == "open_connection" else ConnectionPool
        monkeypatch.setattr(owner, where, bug)
        clients: list[Any] = [world.client(), world.consumer("t"), world.producer()]
        await end_with_the_bug(world, *(client.start() for client in clients))
        monkeypatch.undo()
        for client in clients:
            assert client.state is State.NEW
            await client.start()
            await client.close()

    simulate(scenario)


@pytest.mark.parametrize("step", ["request", "learn"])
def test_calls_that_share_a_coordinator_lookup_end_when_it_has_a_bug(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            locator = client.cluster.coordinators
            real = CoordinatorLocator._request_coordinators

            async def late(*args: Any) -> Any:
                await asyncio.sleep(1)
                return bug() if step == "request" else await real(locator, *args)

            monkeypatch.setattr(locator, "_request_coordinators", late)
            if step == "learn":
                monkeypatch.setattr(client.cluster.updater, "learn_broker", bug)
            began = world.now
            calls = [locator.locate_coordinator("group", "g") for _ in range(3)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert world.now - began < LIMIT_S
            assert isinstance(outcomes[0], BugError)
            if step == "request":
                assert all(isinstance(outcome, BugError) for outcome in outcomes)
            monkeypatch.undo()
            request = DescribeGroupsRequest(groups=["g"])
            await client.request(request, to=Coordinator("group", "g"))

    simulate(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commit_that_waits_for_the_group_ends_when_a_task_of_the_consumer_dies(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"group_protocol": protocol, "enable_auto_commit": False}
        if protocol == "consumer":
            options |= {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 3_000}
        consumer = member(world, **options)
        consumer.assign([BY_HAND])
        kip848 = protocol == "consumer"
        api = ApiKey.CONSUMER_GROUP_HEARTBEAT if kip848 else ApiKey.JOIN_GROUP
        with world.cluster.fail(api, CoordinatorLoadInProgressError):
            await consumer.start()
            calls = [asyncio.create_task(consumer.commit({BY_HAND: n})) for n in (1, 2)]
            if not kip848:
                calls.append(asyncio.create_task(consumer.rewind_group({T0: 0})))
            await asyncio.sleep(1)
            assert not any(call.done() for call in calls)
            consumer._supervisor.fail(BugError("a bug"), "a task")
            await end_with_the_bug(world, *calls)
        await consumer.close()

    simulate(scenario, topics={"t": 1, "hand": 1})


def test_deliveries_end_when_the_request_for_a_producer_id_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late(ProducerIds):
        async def _request_id(self) -> Any:
            await asyncio.sleep(1)
            bug()

    monkeypatch.setattr("aiokclient.producer.engine.ProducerIds", Late)

    async def scenario(world: World) -> None:
        producer = world.producer()
        await producer.start()
        began = world.now
        delivery = producer.send("t", b"v")
        flushed = asyncio.create_task(producer.flush())
        with pytest.raises(KafkaError) as caught:
            await delivery
        await asyncio.wait([flushed])
        assert isinstance(caught.value.__cause__, BugError)
        assert world.now - began < LIMIT_S
        assert producer.state is State.FAILED
        await producer.close()

    simulate(scenario)


def test_producer_that_asks_for_partitions_ends_when_the_metadata_task_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        producer = world.producer()
        await producer.start()
        monkeypatch.setattr(MetadataUpdater, "_note_topics", bug)
        began = world.now
        calls = [producer.partitions_for("t"), producer.prepare("missing")]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, BugError) or isinstance(outcome.__cause__, BugError)
        assert world.now - began < LIMIT_S
        monkeypatch.undo()
        await producer.close()

    simulate(scenario)


def test_wait_for_the_turn_to_write_ends_when_a_task_of_the_member_dies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        candidates: list[Candidate] = []
        make = Candidate._make_handler

        def note(candidate: Candidate) -> Any:
            candidates.append(candidate)
            return make(candidate)

        monkeypatch.setattr(Candidate, "_make_handler", note)

        async def write() -> None:
            async with single_writer("g", **world.options()):
                raise AssertionError("There are two writers.")

        async with single_writer("g", **world.options()):
            waiting = asyncio.create_task(write())
            await asyncio.sleep(10)
            assert not waiting.done()
            candidates[1]._supervisor.fail(BugError("a bug"), "a task")
            await end_with_the_bug(world, waiting)

    simulate(scenario)


def test_refresh_still_ends_with_its_own_timeout_while_the_task_lives() -> None:
    async def scenario(world: World) -> None:
        async with Client(**world.options(request_timeout_ms=60_000)) as client:
            with world.cluster.delay(ApiKey.METADATA, 100), pytest.raises(ApiTimeoutError):
                await client.cluster.updater.refresh(timeout=2)

    simulate(scenario)


async def poll_forever(consumer: Consumer[Any, Any]) -> None:
    while True:
        await consumer.poll(timeout=1)


class BrokenHandler(logging.Handler):
    """A handler of the application that raises, and does not handle its errors."""

    def emit(self, record: logging.LogRecord) -> None:
        raise LookupError("broken handler")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_fails_with_a_reason_when_the_log_of_the_application_raises(
    protocol: str,
) -> None:
    async def scenario(world: World) -> None:
        consumer = world.consumer("t", group_id="g", group_protocol=protocol)
        await consumer.start()
        await consumer.poll(timeout=5)
        logger, broken = logging.getLogger("aiokclient"), BrokenHandler()
        level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(broken)
        try:
            consumer.subscribe(["u"])
            async with asyncio.timeout(60):
                with pytest.raises(LookupError, match="broken handler"):
                    await poll_forever(consumer)
        finally:
            logger.removeHandler(broken)
            logger.setLevel(level)
        assert consumer.state is State.FAILED
        assert "broken handler" in str(consumer.health().reasons)
        await consumer.close()

    simulate(scenario, topics={"t": 1, "u": 1})
