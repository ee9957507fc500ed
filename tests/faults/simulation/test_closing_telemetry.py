"""A client pushes its metrics when it is closed. If the reporter fails, the client goes on."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from interrupt import interrupt, watched
from rebootstrapping import Plain
from reporting import ASK, INTERVAL_S, LONG_S, PUSH, Reports, simulate_reports, warnings

from aiokclient import Admin, Client, Consumer, GroupMember, Producer, State, TopicPartition
from aiokclient.protocol import ApiKey
from aiokclient.telemetry.reporter import Reporter

THROTTLING_QUOTA_EXCEEDED = 89
UNKNOWN_SUBSCRIPTION_ID = 117


async def searching(reports: Reports) -> None:
    reports.world.cluster.limit_versions({ASK: None, PUSH: None})


async def delayed(reports: Reports) -> None:
    pass


async def asking(reports: Reports) -> None:
    reports.world.cluster.delay(ASK, 3600, times=1)
    await reports.until(1, ASK)


async def resting(reports: Reports) -> None:
    await reports.subscribe("")
    await reports.until(1, ASK)
    await asyncio.sleep(1)


async def ready(reports: Reports) -> None:
    await reports.until(1, ASK)
    await asyncio.sleep(1)


async def pushing(reports: Reports) -> None:
    reports.world.cluster.delay(PUSH, 0.3, times=1)
    await reports.until(1, PUSH)


async def postponed(reports: Reports) -> None:
    reports.world.cluster.fail(PUSH, THROTTLING_QUOTA_EXCEEDED, times=1)
    await reports.until(1, PUSH)
    await asyncio.sleep(1)


async def asking_again(reports: Reports) -> None:
    await reports.until(1, PUSH)
    reports.world.cluster.fail(PUSH, UNKNOWN_SUBSCRIPTION_ID, times=1)
    reports.world.cluster.delay(ASK, 0.3, times=1)
    await reports.until(2, ASK)


async def ended(reports: Reports) -> None:
    reports.world.cluster.fail(PUSH, 87, times=1)
    await reports.until(1, PUSH)
    await asyncio.sleep(1)


STATES = {
    searching: ("searching", False),
    delayed: ("delayed", False),
    asking: ("asking", False),
    resting: ("resting", False),
    ready: ("ready", True),
    pushing: ("pushing", True),
    postponed: ("resting", True),
    asking_again: ("asking again", True),
    ended: ("ended", False),
}
"""For each function that brings a reporter into a state: the state, and whether `close()` pushes
metrics in that state."""


def assigned(consumer: Consumer[Any, Any]) -> Consumer[Any, Any]:
    consumer.assign([TopicPartition("t", 0)])
    return consumer


KINDS: dict[str, Any] = {
    "Client": Client,
    "Producer": Producer,
    "transactional": lambda **options: Producer(transactional_id="x", **options),
    "classic": lambda **options: Consumer("t", group_id="g", **options),
    "KIP-848": lambda **options: Consumer("t", group_id="g", group_protocol="consumer", **options),
    "assigned": lambda **options: assigned(Consumer(**options)),
    "Admin": Admin,
    "GroupMember": lambda **options: GroupMember(
        "g", protocol_type="p", protocols=[Plain()], **options
    ),
}


@pytest.mark.parametrize("reach", STATES)
def test_close_pushes_once_if_a_subscription_is_in_use(
    reach: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, subscribed = STATES[reach]

    async def scenario(reports: Reports) -> None:
        if reach is searching:
            await reach(reports)
        client = Client(**reports.options())
        await client.start()
        if reach is not searching:
            await reach(reports)
        assert client.health().telemetry.startswith(state)
        began = reports.world.now
        await client.close()
        assert reports.world.now - began < 0.6
        count = len(reports.requests)
        terminating = [each for each in reports.messages(PUSH) if each.terminating]
        assert len(terminating) == subscribed
        if subscribed:
            assert reports.requests[-1][3].terminating
        await asyncio.sleep(LONG_S)
        assert len(reports.requests) == count

    simulate_reports(monkeypatch, scenario)


@pytest.mark.parametrize("how", ["close", "error", "cancelled", "failed", "no time"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_client_pushes_when_it_is_closed(
    kind: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(reports: Reports) -> None:
        client = KINDS[kind](**reports.options())
        await client.start()
        await reports.until(1, PUSH)
        await asyncio.sleep(1)
        if how == "failed":
            client._cluster.supervisor.fail(RuntimeError("a bug"), "test")
        if how == "error":
            await client.__aexit__(ValueError, ValueError(), None)
        elif how == "cancelled":
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
        else:
            await client.close(*([0] if how == "no time" else []))
        await asyncio.sleep(1)
        assert [push.terminating for push in reports.pushed.pushes] == [False, True]
        assert reports.requests[-1][1] is PUSH
        reports.check_nothing_is_lost()

    simulate_reports(monkeypatch, scenario)


def test_last_push_takes_at_most_half_a_second_of_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        for timeout, limit in ((30, 0.5), (0.2, 0.2), (0, 0.1)):
            client = Client(**reports.options())
            await client.start()
            count = len(reports.times(ASK))
            await reports.until(count + 1, ASK)
            await asyncio.sleep(1)
            with reports.world.cluster.delay(PUSH, 3600):
                began = reports.world.now
                await client.close(timeout)
                assert limit - 0.01 <= reports.world.now - began < limit + 0.1
            reports.world.cluster.disconnect()

    simulate_reports(monkeypatch, scenario)


def test_close_that_needs_all_its_time_pushes_before_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()) as client:
            producer = Producer(client=client, delivery_timeout_ms=60_000)
            await producer.start()
            await reports.until(1, PUSH)
            reports.world.cluster.fail(ApiKey.PRODUCE, 6)
            producer.send("t", b"never delivered").add_done_callback(lambda one: one.exception())
            began = reports.world.now
            await client.close(5)
            assert reports.world.now - began < 5.1
        assert reports.pushed.pushes[-1].terminating
        assert 4.4 < reports.pushed.pushes[-1].at - began < 5

    simulate_reports(monkeypatch, scenario)


# -- failures of the reporter


def test_bug_of_telemetry_is_one_warning_and_the_client_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Producer(**reports.options()) as producer:
            await reports.until(1, PUSH)
            reports.fake.error = RuntimeError("a bug")
            await asyncio.sleep(LONG_S)
            await producer.send_and_wait("t", b"x")
            assert producer.state is State.RUNNING
            assert producer.health().reasons == ()
            assert "failed: RuntimeError('a bug')" in repr(producer.health())
            assert await producer.client_instance_id()
        assert len(reports.requests) == 2

    simulate_reports(monkeypatch, scenario)
    assert len(warnings(caplog.records)) == 1


def test_reporter_can_be_cancelled_at_every_suspension(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Reporter._run_task
    count = wanted = 0

    async def interrupted(self: Reporter) -> None:
        nonlocal count

        def suspended() -> None:
            nonlocal count
            count += 1
            if count == wanted:
                asyncio.get_running_loop().call_soon(task.cancel)

        task = asyncio.current_task()
        assert task is not None
        await watched(run(self), suspended)

    monkeypatch.setattr(Reporter, "_run_task", interrupted)

    async def scenario(reports: Reports) -> None:
        async with Producer(**reports.options()) as producer:
            for _ in range(4):
                await producer.send_and_wait("t", b"x")
                await asyncio.sleep(INTERVAL_S)
            assert producer.state is State.RUNNING
            telemetry = producer.health().telemetry
            ends.add("failed" if telemetry.startswith("failed") else telemetry)
            await producer.close()

    ends: set[str] = set()
    for wanted in range(1, 1_000):
        count = 0
        caplog.clear()
        simulate_reports(monkeypatch, scenario, more=100)
        if count < wanted:
            break
        assert len(warnings(caplog.records)) <= 1
        if ends == {"failed"}:
            assert "cancelled from outside" in warnings(caplog.records)[0]
        ends.clear()
    print(f"the reporter was cancelled at {wanted - 1} suspensions")  # noqa: T201
    assert 15 < wanted < 1_000


@pytest.mark.parametrize("way", ["asyncio", "anyio"])
def test_calls_of_a_client_that_pushes_metrics_can_be_cancelled_at_every_suspension(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()

    async def scenario(reports: Reports) -> None:
        for call in ("client_instance_id", "close"):
            for suspension in range(1, 1_000):
                client = Client(**reports.options())
                await client.start()
                if call == "close":
                    instance_id = await client.client_instance_id()
                found = await interrupt(getattr(client, call)(), way=way, suspension=suspension)
                counts[call] += found.cancelled
                if call == "close":
                    assert client.state is State.CLOSED
                    assert reports.requests[-1][3].terminating
                    assert reports.requests[-1][3].client_instance_id == instance_id
                else:
                    assert client.state is State.RUNNING
                    assert await client.client_instance_id()
                    await client.close()
                if not found.cancelled:
                    break

    simulate_reports(monkeypatch, scenario)
    print(f"cancelled at suspensions, {way}: {dict(counts)}")  # noqa: T201
    assert all(counts[call] for call in ("client_instance_id", "close"))


def test_close_can_be_cancelled_at_many_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        for step in range(30):
            client = Client(**reports.options())
            await client.start()
            await client.client_instance_id()
            closing = asyncio.create_task(client.close())
            await asyncio.sleep(step * 0.0005)
            closing.cancel()
            await asyncio.wait([closing])
            assert client.state is State.CLOSED
            assert reports.requests[-1][3].terminating

    simulate_reports(monkeypatch, scenario)
