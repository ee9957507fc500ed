"""Clients of every kind find their cluster again, by each trigger, and with the strategy "none"."""

import asyncio
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from driver import Writer, partitions_of
from rebootstrapping import (
    FAULTS,
    NEW,
    OLD,
    OPTIONS,
    PAUSED,
    REQUIRED,
    TOPICS,
    TRIGGER_S,
    WORKS,
    ClusterFault,
    ProducerWork,
    Watch,
    bootstrap_servers,
    connect_to_all,
    move_brokers,
    name_leads_to,
    open_connections,
    stop_all,
    until_healthy,
    until_more,
)
from thinned import in_turns
from world import World, simulate

from aiokclient import Admin, AnyBroker, Client, Consumer
from aiokclient.cluster.recovery import Trigger
from aiokclient.cluster.targets import Broker
from aiokclient.errors import (
    ApiTimeoutError,
    ConfigError,
    KafkaError,
    RebootstrapRequiredError,
    UnknownServerError,
)
from aiokclient.network.pool import Purpose
from aiokclient.protocol import ApiKey, messages
from aiokclient.testing import EmbeddedCluster

STRATEGIES = ("rebootstrap", "none")
QUIET_S, CLOSE_S = 3.0, 2.0
CASES = [(fault, strategy, kind) for fault in FAULTS for strategy in STRATEGIES for kind in WORKS]
TESTED = in_turns(3, FAULTS, STRATEGIES, WORKS)
"""The cases of `make test`: of the pairs of a fault and a kind two in three, with one strategy."""
IDS = [f"{fault.__name__}-{strategy}-{kind}".replace(" ", "_") for fault, strategy, kind in TESTED]


passed: list[str] = []
"""The cases that have passed so far."""


@pytest.fixture(scope="module", autouse=True)
def _count(request: pytest.FixtureRequest) -> Iterator[None]:
    """Print the number of cases when all have run."""
    yield
    capture: Any = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        sys.stdout.write(f"\n{len(passed)} cases of triggers, strategies, and clients passed\n")


def test_there_is_a_case_for_each_trigger_strategy_and_client() -> None:
    assert len(CASES) >= 60
    assert {fault.trigger for fault, _, _ in CASES} == set(Trigger)


@pytest.mark.fault(28)
@pytest.mark.parametrize(("fault", "strategy", "kind"), TESTED, ids=IDS)
def test_client_survives(fault: type[ClusterFault], strategy: str, kind: str) -> None:
    moves = strategy == "rebootstrap"

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        work = WORKS[kind](world, {**OPTIONS, "metadata_recovery_strategy": strategy})
        async with work.main() as client:
            watch = Watch(world, client._cluster)
            trouble = fault(world, moves=moves)
            spare = work.spare()
            await spare.start()
            running = asyncio.create_task(work.run())
            await until_more(world, work, 9)
            watch.begin()
            watching = asyncio.create_task(watch.run())
            reasons: set[str] = set()
            with trouble.active():
                while world.now < watch.began + QUIET_S:
                    reasons.update(client.health().reasons)
                    await asyncio.sleep(0.25)
                # Until now, the program made no calls, so all attempts were the client's own.
                calling = asyncio.create_task(work.make_calls())
                await work.call(partial(spare.close, timeout=CLOSE_S), CLOSE_S)
                while world.now < watch.began + trouble.lasts_s:
                    reasons.update(client.health().reasons)
                    await asyncio.sleep(0.25)
            await until_more(world, work, 9)
            assert not running.done()
            assert not calling.done()
            calling.cancel()
            watching.cancel()
            running.cancel()
            await asyncio.wait([running, watching, calling])
            await work.finish()
            assert work.calls
            assert not work.late
            await until_healthy(world, client)
        if moves:
            first, trigger = watch.rebootstraps[0]
            assert trigger is fault.trigger
            earliest, latest = trouble.earliest_and_latest(watch.began, watch.attempted)
            assert earliest <= first <= latest, (first, earliest, latest)
            assert len(watch.rebootstraps) <= 2 + trouble.lasts_s
            assert all(each.closed for each in watch.former)
        else:
            assert not watch.rebootstraps
            assert fault.trigger in watch.missed
            assert any(fault.trigger.value in reason for reason in reasons)

    simulate(scenario, brokers=3, topics={**TOPICS, PAUSED.topic: 1}, replication=3)
    passed.append(f"{fault.__name__}, {strategy}, {kind}")


@pytest.mark.fault(28)
def test_stuck_connection_leaves_the_rebootstrap_to_the_trigger_time() -> None:
    """A broker may be available if its packets are only dropped (KIP-1102). The others are down.

    The test uses the default trigger time of five minutes.
    """

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        work = ProducerWork(world, {"delivery_timeout_ms": 600_000})
        async with work.main() as producer:
            watch = Watch(world, producer._cluster)
            running = asyncio.create_task(work.run())
            await until_more(world, work, 9)
            watch.begin()
            watching = asyncio.create_task(watch.run())
            world.network.part({"client"}, {world.address(1)})
            stop_all(world)
            world.network.cut(world.address(1))
            move_brokers(world, NEW)
            work.writer.pause = 5.0
            await until_more(world, work, 3, timeout_s=400)
            watching.cancel()
            running.cancel()
            await asyncio.wait([running, watching])
            await work.finish()
        first, trigger = watch.rebootstraps[0]
        assert trigger is Trigger.TIMEOUT
        assert watch.attempted - watch.began < 2
        assert 0 <= first - watch.attempted - 300 < 0.1
        assert len(watch.rebootstraps) == 1
        world.network.heal()

    simulate(scenario, brokers=3, topics=TOPICS, replication=3)


@pytest.mark.fault(28)
@pytest.mark.parametrize("accepts", [False, True])
@pytest.mark.parametrize("brokers", [1, 3])
def test_brokers_that_time_out_leave_the_rebootstrap_to_the_trigger_time(
    brokers: int, accepts: bool
) -> None:
    """All attempts to connect time out, again and again, so that all brokers are in backoff.

    With `accepts`, the brokers accept connections, and then do not respond.
    """

    async def scenario(world: World) -> None:
        async with world.client(metadata_max_age_ms=3_000) as client:
            await connect_to_all(world, client)
            watch = Watch(world, client.cluster)
            watch.begin()
            watching = asyncio.create_task(watch.run())
            for broker in world.cluster.brokers:
                if accepts:
                    world.cluster.pause(broker)
            world.cluster.disconnect()
            if not accepts:
                world.network.part({"client"}, set(map(world.address, world.cluster.brokers)))
            everything_rests = 0
            while not watch.rebootstraps:
                await asyncio.sleep(0.01)
                now = asyncio.get_running_loop().time()
                pools = client.cluster.brokers._pools.values()
                everything_rests += all(
                    now < pool.not_before and not pool.measure_attempt_s(Purpose.CONTROL)
                    for pool in pools
                )
            watching.cancel()
            # If there is only one broker, it must have been in backoff after each attempt.
            assert everything_rests or brokers > 1
            when, trigger = watch.rebootstraps[0]
            assert trigger is Trigger.TIMEOUT
            assert 0 <= when - watch.attempted - 300 < 0.1
            for broker in world.cluster.brokers:
                if accepts:
                    world.cluster.resume(broker)
            world.network.heal()

    simulate(scenario, brokers=brokers)


def without_brokers(cluster: EmbeddedCluster) -> Any:
    def change(request: Any, response: Any) -> Any:
        response.brokers = []
        return response

    return cluster.alter(ApiKey.METADATA, change)


def refused(cluster: EmbeddedCluster) -> Any:
    return cluster.fail(ApiKey.METADATA, UnknownServerError)


def closed(cluster: EmbeddedCluster) -> Any:
    return cluster.drop(ApiKey.METADATA)


def late(cluster: EmbeddedCluster) -> Any:
    return cluster.delay(ApiKey.METADATA, 1_000)


@pytest.mark.fault(27)
@pytest.mark.parametrize("reason", [without_brokers, refused, closed, late])
def test_trigger_time_passes_whatever_the_reason_why_there_is_no_metadata(reason: Any) -> None:
    """Only Metadata requests fail. All brokers are connected and serve other requests."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "bootstrap_servers": bootstrap_servers(world)}
        async with world.client(**options) as client:
            watch = Watch(world, client.cluster)
            watch.begin()
            watching = asyncio.create_task(watch.run())
            with reason(world.cluster):
                await asyncio.sleep(40)
            watching.cancel()
            when, trigger = watch.rebootstraps[0]
            assert trigger is Trigger.TIMEOUT
            assert -0.02 <= when - watch.attempted - TRIGGER_S < 0.1
            assert all(each.closed for each in watch.former)
            # Requests whose responses are delayed end by their timeout.
            await until_healthy(world, client, 60)

    simulate(scenario, brokers=3, topics=TOPICS)


@pytest.mark.fault(28)
def test_sends_in_the_overflow_queue_are_written_after_a_rebootstrap() -> None:
    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {"bootstrap_servers": bootstrap_servers(world), "buffer_memory": 8_000}
        async with world.producer(**options, batch_size=500) as producer:
            watch = Watch(world, producer._cluster)
            writer = Writer(producer, world.ledger, partitions_of(TOPICS))
            await writer.run(9)
            await producer.flush()
            stop_all(world)
            while not producer.full:
                writer.send("t", len(world.ledger.sent) % 3)
            for number in range(30):
                writer.send("t", number % 3)
            assert not world.ledger.settled
            await asyncio.sleep(5)
            move_brokers(world, NEW)
            await producer.flush()
            assert not producer.full
        assert watch.rebootstraps
        assert not world.ledger.failed
        world.check()

    simulate(scenario, brokers=3, topics=TOPICS, replication=3)


def test_brokers_of_a_large_cluster_that_refuse_are_given_up_soon() -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            watch = Watch(world, client.cluster)
            stop_all(world)
            began = world.now
            await asyncio.sleep(5)
            first, trigger = watch.rebootstraps[0]
            assert trigger is Trigger.UNAVAILABLE
            assert first - began < 2

    simulate(scenario, brokers=100)


def test_brokers_that_refuse_during_the_start_cause_no_rebootstrap_after_it() -> None:
    async def scenario(world: World) -> None:
        port = world.cluster.address(1)[1]
        world.network.refuse(world.address(2))
        world.network.refuse(world.address(3))

        def without_first(request: Any, response: Any) -> Any:
            response.brokers = [each for each in response.brokers if each.node_id != 1]
            return response

        client = world.client(bootstrap_servers=f"127.0.0.1:{port}")
        with world.cluster.alter(ApiKey.METADATA, without_first):
            starting = asyncio.create_task(client.start())
            await asyncio.sleep(3)
            world.network.refuse(world.address(2), refused=False)
            await starting
            watch = Watch(world, client.cluster)
            await asyncio.sleep(5)
        assert not watch.rebootstraps
        await client.close()

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("trigger_ms", [0, 300_000])
def test_dead_addresses_cause_few_requests_and_connections(trigger_ms: int) -> None:
    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "metadata_recovery_rebootstrap_trigger_ms": trigger_ms}
        work = WORKS["shared client"](world, options)
        async with work.main() as client:
            running = asyncio.create_task(work.run())
            await until_more(world, work, 9)
            world.network.events.clear()
            stop_all(world)
            attempts = 0
            for _ in range(60):
                await asyncio.sleep(1)
                attempts += sum("refused" in what for _, what in world.network.events)
                world.network.events.clear()
            assert attempts < 6 * 60, attempts
            move_brokers(world, NEW)
            await until_more(world, work, 9)
            running.cancel()
            await asyncio.wait([running])
            await work.finish()
            await until_healthy(world, client)

    simulate(scenario, brokers=3, topics=TOPICS, replication=3)


@pytest.mark.parametrize("trigger_ms", [0, 300_000])
def test_bootstrap_server_that_lists_dead_brokers_is_asked_rarely(trigger_ms: int) -> None:
    """Each bootstrap succeeds, but all brokers in the response are dead."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "metadata_recovery_rebootstrap_trigger_ms": trigger_ms}
        options |= {"bootstrap_servers": bootstrap_servers(world)}
        async with world.client(**options) as client:

            def dead(request: Any, response: Any) -> Any:
                for broker in response.brokers:
                    broker.port += 1000
                return response

            with world.cluster.alter(ApiKey.METADATA, dead):
                world.cluster.disconnect()
                await asyncio.sleep(5)
                opened, began = world.network.connections_made, world.now
                await asyncio.sleep(60)
                assert len(world.requests(ApiKey.METADATA, since=began)) < 2 * 60
                assert world.network.connections_made - opened < 2 * 60
            await client.request(messages.MetadataRequest(topics=[]), to=AnyBroker())
            await until_healthy(world, client)

    simulate(scenario, brokers=3)


def test_trigger_time_of_zero_rebootstraps_at_the_first_failure() -> None:
    """While each request succeeds, there is no rebootstrap. The first failure causes one."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "metadata_recovery_rebootstrap_trigger_ms": 0}
        options |= {"bootstrap_servers": bootstrap_servers(world)}
        async with world.client(**options) as client:
            watch = Watch(world, client.cluster)
            for _ in range(5):
                await client.cluster.updater.refresh(timeout=5)
            assert not watch.rebootstraps
            began = world.now
            with world.cluster.drop(ApiKey.METADATA, times=1):
                await client.cluster.updater.refresh(timeout=5)
            assert [trigger for _, trigger in watch.rebootstraps] == [Trigger.TIMEOUT]
            assert world.now - began < 1.5

    simulate(scenario, brokers=3)


def test_rebootstrap_begins_at_the_trigger_time_while_a_request_is_in_flight() -> None:
    """The request alone would wait three seconds for its response."""

    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "metadata_recovery_rebootstrap_trigger_ms": 1_000}
        options |= {"bootstrap_servers": bootstrap_servers(world)}
        async with world.client(**options) as client:
            watch, began = Watch(world, client.cluster), world.now
            with world.cluster.delay(ApiKey.METADATA, 60, times=1):
                await client.cluster.updater.refresh(timeout=30)
            ((at, trigger),) = watch.rebootstraps
            assert trigger is Trigger.TIMEOUT
            assert at - began == pytest.approx(1.0, abs=0.1)

    simulate(scenario, brokers=3)


@pytest.mark.parametrize(
    "option",
    [
        {"metadata_recovery_strategy": "sometimes"},
        {"metadata_recovery_rebootstrap_trigger_ms": -1},
        {"metadata_recovery_rebootstrap_trigger_ms": 1.5},
        {"metadata_cluster_check_enable": "maybe"},
        {"cluster_id_change": "ignore"},
    ],
)
def test_wrong_options_of_a_rebootstrap_are_refused(option: dict[str, Any]) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ConfigError, match=next(iter(option))):
            world.client(**option)

    simulate(scenario)


# -- metadata that the program itself requests


def all_topics(message: Any) -> bool:
    """Return whether a Metadata request asks for all topics, which only the program does."""
    return bool(message.topics is None)


async def list_by_request(client: Client, timeout: float) -> None:
    request = messages.MetadataRequest(topics=None)
    await client.request(request, to=AnyBroker(), timeout=timeout)


async def list_by_admin(client: Client, timeout: float) -> None:
    async with Admin(client=client) as admin:
        await admin.list_topics(timeout=timeout)


async def list_by_consumer(client: Client, timeout: float) -> None:
    async with Consumer(client=client) as consumer:
        await consumer.list_topics(timeout=timeout)


LISTS = [list_by_request, list_by_admin, list_by_consumer]


def require(request: Any, response: Any) -> Any:
    response.error_code = REQUIRED
    return response


@pytest.mark.parametrize("list_topics", LISTS)
def test_response_to_the_program_that_requires_a_rebootstrap_causes_one(list_topics: Any) -> None:
    async def scenario(world: World) -> None:
        async with world.client() as client:
            watch = Watch(world, client.cluster)
            await connect_to_all(world, client)
            former = open_connections(client.cluster.brokers)
            began = world.now
            with world.cluster.alter(ApiKey.METADATA, require, where=all_topics, times=1):
                await list_topics(client, 30)
            assert [trigger for _, trigger in watch.rebootstraps] == [Trigger.REQUIRED]
            assert watch.rebootstraps[0][0] - began < 0.1
            assert len(former) >= 3
            assert all(each.closed for each in former)
            await until_healthy(world, client)

    simulate(scenario, brokers=3)


@pytest.mark.parametrize("list_topics", LISTS)
def test_response_to_the_program_that_requires_a_rebootstrap_is_only_noted_without_them(
    list_topics: Any,
) -> None:
    async def scenario(world: World) -> None:
        async with world.client(metadata_recovery_strategy="none") as client:
            watch = Watch(world, client.cluster)
            began, reasons = world.now, set[str]()
            with world.cluster.alter(ApiKey.METADATA, require, where=all_topics):
                listing = asyncio.create_task(list_topics(client, 5))
                while not listing.done():
                    reasons.update(client.health().reasons)
                    await asyncio.sleep(0.01)
                assert abs(world.now - began - 5) < 0.1
                with pytest.raises(ApiTimeoutError) as raised:
                    await listing
                assert "REBOOTSTRAP_REQUIRED" in repr(raised.value.__cause__)
            assert not watch.rebootstraps
            assert any(Trigger.REQUIRED.value in each for each in reasons)
            assert len(world.requests(ApiKey.METADATA, since=began)) < 5 * 5
            await list_topics(client, 5)

    simulate(scenario, brokers=3)


def test_program_gets_the_response_to_ids_that_it_has_sent_itself() -> None:
    """The program may send other ids to a broker without causing a rebootstrap."""

    async def scenario(world: World) -> None:
        async with world.client() as client:
            watch = Watch(world, client.cluster)
            program = {"client_software_name": "program", "client_software_version": "1"}
            request = messages.ApiVersionsRequest(cluster_id="another", node_id=1, **program)
            with pytest.raises(RebootstrapRequiredError):
                await client.request(request, to=Broker(1))
            assert not watch.rebootstraps

    simulate(scenario)


def test_calls_end_by_their_deadlines_while_nothing_is_found() -> None:
    async def scenario(world: World) -> None:
        name_leads_to(world, OLD)
        options = {**OPTIONS, "bootstrap_servers": bootstrap_servers(world)}
        async with world.client(**options) as client:
            stop_all(world)
            await asyncio.sleep(3)
            for timeout in (0.5, 3.0, 20.0):
                began = world.now
                with pytest.raises(KafkaError):
                    await client.request(
                        messages.MetadataRequest(topics=[]), to=AnyBroker(), timeout=timeout
                    )
                assert abs(world.now - began - timeout) < 0.1

    simulate(scenario, brokers=3)


def test_health_does_not_promise_a_rebootstrap_with_the_strategy_none() -> None:
    async def scenario(world: World) -> None:
        async with world.client(metadata_recovery_strategy="none") as client:
            with world.cluster.alter(ApiKey.METADATA, require):
                client.cluster.updater.request_update()
                await asyncio.sleep(3)
                reasons = client.health().reasons
            assert any("REBOOTSTRAP_REQUIRED" in each for each in reasons), reasons
            assert any("With 'none', restart it" in each for each in reasons), reasons
            assert not any("The client does so" in each for each in reasons)

    simulate(scenario)
