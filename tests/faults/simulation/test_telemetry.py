"""Clients push their metrics, whatever the brokers respond, and until they are closed."""

import asyncio
import itertools
import os
from collections import Counter
from typing import Any

import pytest
from rebootstrapping import NEW, OLD, bootstrap_servers, move_brokers, name_leads_to, stop_all
from reporting import (
    ASK,
    INTERVAL_S,
    LONG_S,
    NAME,
    PUSH,
    SUMS,
    FakeCollector,
    Reports,
    simulate_reports,
    warnings,
)
from world import World, simulate

from aiokclient import Admin, Client, Producer, State
from aiokclient.admin import ConfigResource
from aiokclient.errors import (
    ERRORS_BY_CODE,
    ApiTimeoutError,
    ClosedError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
)
from aiokclient.protocol import ApiKey

FORBIDDEN_S = 1_800.0
DEFAULT_S = 300.0
UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE = 117, 76
TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED = 118, 89
AUTHORIZATION = (29, 30, 31, 53, 65)
FINAL = [
    code
    for code in [*ERRORS_BY_CODE, 999]
    if code
    not in (
        UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE,
        TELEMETRY_TOO_LARGE,
        THROTTLING_QUOTA_EXCEEDED,
        *AUTHORIZATION,
    )
]
"""The error codes after which the pushes end: all codes except those in the list above."""


def span(times: list[float], index: int = -1) -> float:
    return times[index] - times[index - 1]


# -- the error table


@pytest.mark.parametrize("code", [UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE])
def test_subscription_is_requested_immediately_after_a_push_that_is_refused(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            await reports.until(2, PUSH)
            reports.world.cluster.fail(PUSH, code, times=1)
            await reports.until(3, PUSH)
            refused = reports.times(PUSH)[-1]
            await reports.until(2, ASK)
            assert reports.times(ASK)[-1] - refused < 0.1
            await reports.until(4, PUSH)
            assert 0.5 * INTERVAL_S <= span(reports.times(PUSH)) <= 1.5 * INTERVAL_S + 0.1
            await asyncio.sleep(0.1)
            reports.check_nothing_is_lost()
            codecs = [each.compression_type for each in reports.messages(PUSH)]
            changed = code == UNSUPPORTED_COMPRESSION_TYPE
            assert codecs == ([4, 4, 4, 3] if changed else [4] * 4)
        reports.check_nothing_is_lost()

    simulate_reports(monkeypatch, scenario, more=50)
    assert len(warnings(caplog.records)) == (code != UNKNOWN_SUBSCRIPTION_ID)


def test_every_compression_is_tried_and_then_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reports: Reports) -> None:
        reports.world.cluster.fail(PUSH, UNSUPPORTED_COMPRESSION_TYPE, times=7)
        async with Client(**reports.options()):
            await reports.until(8, PUSH)
            pushes = reports.messages(PUSH)
            assert [each.compression_type for each in pushes] == [4, 3, 1, 2, 0, 0, 0, 0]
        assert reports.pushed.pushes

    simulate_reports(monkeypatch, scenario, more=50)
    refused = [each for each in warnings(caplog.records) if "UNSUPPORTED_COMPRESSION" in each]
    assert len(refused) == 1


@pytest.mark.parametrize("code", [TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED])
def test_push_is_repeated_after_an_interval(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            await reports.until(2, PUSH)
            reports.world.cluster.fail(PUSH, code, times=2)
            await reports.until(4, PUSH)
            for index in (-2, -1):
                assert INTERVAL_S <= span(reports.times(PUSH), index) < INTERVAL_S + 0.1
            await reports.until(5, PUSH)
            await asyncio.sleep(0.1)
            reports.check_nothing_is_lost()
            sizes = [len(push.metrics.resource_metrics) for push in reports.pushed.pushes]
            assert (sizes[-1] < sizes[0]) == (code == TELEMETRY_TOO_LARGE)

    simulate_reports(monkeypatch, scenario, more=50)
    assert len(warnings(caplog.records)) == (code == TELEMETRY_TOO_LARGE)


@pytest.mark.parametrize("api", [ASK, PUSH])
@pytest.mark.parametrize("code", [35, 42, 87, 999])
def test_error_ends_the_pushes_for_good(
    code: int,
    api: ApiKey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(reports: Reports) -> None:
        reports.world.cluster.fail(api, code, times=1)
        async with Client(**reports.options()) as client:
            await reports.until(1, api)
            count = len(reports.requests)
            await asyncio.sleep(LONG_S)
            assert client.health().telemetry.startswith("ended")
            assert client.state is State.RUNNING
            if api is ASK:
                with pytest.raises(KafkaError) as raised:
                    await client.client_instance_id()
                assert raised.value.code == code
        assert len(reports.requests) == count

    simulate_reports(monkeypatch, scenario)
    assert len(warnings(caplog.records)) == 1


def test_all_other_errors_end_the_pushes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        for code in FINAL:
            with reports.world.cluster.fail(ASK, code, times=1):
                async with Client(**reports.options()) as client:
                    with pytest.raises(KafkaError) as raised:
                        await client.client_instance_id()
                    assert raised.value.code == code
                    assert client.health().telemetry.startswith("ended")

    assert len(FINAL) > 100
    simulate_reports(monkeypatch, scenario)


@pytest.mark.parametrize(
    ("code", "api"),
    list(
        itertools.product(AUTHORIZATION, (ASK, PUSH))
        if os.environ.get("AIOKCLIENT_EXPLORE")
        else zip(AUTHORIZATION, itertools.cycle((ASK, PUSH)), strict=False)
    ),
)
def test_another_broker_is_used_half_an_hour_after_an_authorization_error(
    code: int,
    api: ApiKey,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(reports: Reports) -> None:
        reports.world.cluster.fail(api, code, times=1)
        async with Client(**reports.options()):
            await reports.until(1, api)
            at, _, broker, _ = reports.requests[-1]
            count = len(reports.requests)
            await asyncio.sleep(at + FORBIDDEN_S - 1 - reports.world.now)  # `until` asks often.
            assert len(reports.requests) == count
            await reports.until(count + 1)
            later, again, other, _ = reports.requests[-1]
            assert again is ASK
            assert FORBIDDEN_S <= later - at < FORBIDDEN_S + 1
            assert other != broker
            await reports.until(2, PUSH)
            assert reports.requests[-1][2] == other

    simulate_reports(monkeypatch, scenario, brokers=3)
    assert len(warnings(caplog.records)) == 1


@pytest.mark.parametrize("silent", [False, True])
def test_push_without_a_response_is_repeated_after_an_interval(
    silent: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options(request_timeout_ms=2_000)):
            await reports.until(2, PUSH)
            if silent:
                reports.world.cluster.delay(PUSH, 3600, times=1)
            else:
                reports.world.cluster.drop(PUSH, times=1)
            await reports.until(4, PUSH)
            waited = INTERVAL_S + (2 if silent else 0)
            assert waited <= span(reports.times(PUSH)) < waited + 2
            await asyncio.sleep(0.1)
            reports.check_nothing_is_lost()

    simulate_reports(monkeypatch, scenario)
    assert len(warnings(caplog.records)) == 1


@pytest.mark.parametrize(
    "code", [UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, 89, None]
)
def test_subscription_is_requested_again_after_an_interval(
    code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(reports: Reports) -> None:
        faults = reports.world.cluster
        _ = faults.drop(ASK, times=2) if code is None else faults.fail(ASK, code, times=2)
        async with Client(**reports.options()):
            await reports.until(3, ASK)
            for index in (-2, -1):
                assert DEFAULT_S <= span(reports.times(ASK), index) < DEFAULT_S + 2
            await reports.until(1, PUSH)

    simulate_reports(monkeypatch, scenario)


def test_throttle_times_postpone_the_next_push(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            await reports.until(2, PUSH)
            reports.world.cluster.throttle(PUSH, 45, times=1)
            await reports.until(4, PUSH)
            assert 45 <= span(reports.times(PUSH)) < 46

    simulate_reports(monkeypatch, scenario)


# -- the subscription


def test_intervals_are_kept_and_the_id_is_requested_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiokclient.telemetry")

    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            began = reports.world.now
            await reports.until(1, ASK)
            assert reports.world.now - began <= 1.1
            await reports.until(10, PUSH)
        times = reports.times(PUSH)
        assert 0.5 * INTERVAL_S <= times[0] - reports.times(ASK)[0] <= 1.5 * INTERVAL_S + 0.1
        for index in range(1, 10):
            assert INTERVAL_S <= span(times, index) < INTERVAL_S + 0.1
        asked = [each.client_instance_id.int for each in reports.messages(ASK)]
        assert asked == [0]
        assert len({push.instance_id for push in reports.pushed.pushes}) == 1
        assert reports.fake.restarted == 10

    simulate_reports(monkeypatch, scenario)
    logged = [each for each in caplog.records if getattr(each, "event", "") == "telemetry_id"]
    assert len(logged) == 1


def test_first_pushes_of_a_thousand_clients_are_spread_over_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The clients are started together, as after the start of a cluster."""
    fake = FakeCollector()
    monkeypatch.setattr(
        "aiokclient.cluster.client.ClusterClient.make_collector", lambda client: fake
    )
    first: dict[str, float] = {}
    asked: dict[str, float] = {}

    class First:
        def export(self, context: Any, payload: Any) -> None:
            first.setdefault(context.client_id, asyncio.get_running_loop().time())

    async def scenario(world: World) -> None:
        async with Admin(**world.options(enable_metrics_push=False)) as admin:
            resource = ConfigResource.client_metrics("all")
            changes = {resource: {"metrics": "*", "interval.ms": 100_000}}
            (await admin.alter_configs(changes)).raise_for_errors()
        clients = [Client(**world.options(client_id=str(n))) for n in range(1000)]
        await asyncio.gather(*(client.start() for client in clients))
        for client in clients:
            client.register_metric("one", lambda: 1)  # Brokers do not export empty pushes.
        began = world.now
        await asyncio.sleep(2)
        for request in world.requests(ASK):
            asked[str(request.client_id)] = request.at
        assert all(at - began < 1.2 for at in asked.values())
        tenths = Counter(int((at - began) * 10) for at in asked.values())
        assert len([tenth for tenth in range(10) if tenths[tenth] > 60]) == 10
        await asyncio.sleep(160)
        await asyncio.gather(*(client.close() for client in clients))

    simulate(scenario, telemetry=First())
    assert len(first) == len(asked) == 1000
    waits = [first[name] - asked[name] for name in first]
    assert 50 <= min(waits) < 52
    assert 148 < max(waits) <= 150.2
    tenths = Counter(int((wait - 50) / 10) for wait in waits)
    print(f"first pushes by tenth of the range, of {len(waits)}: {sorted(tenths.items())}")  # noqa: T201
    assert all(60 < tenths[tenth] < 140 for tenth in range(10))


def test_empty_subscription_is_requested_again_and_the_next_one_replaces_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            await reports.until(2, ASK)
            assert DEFAULT_S <= span(reports.times(ASK)) < DEFAULT_S + 1
            await reports.subscribe("org.apache.kafka.fake")
            await reports.until(2, PUSH)
            assert reports.times(PUSH)[0] - reports.times(ASK)[-1] <= 1.5 * INTERVAL_S + 1
            await reports.subscribe("org.apache.kafka.producer", interval_s=5)
            await reports.until(5, PUSH)
            await asyncio.sleep(0.1)
            pushes = reports.pushed.pushes
            assert pushes[0].names == {"org.apache.kafka.fake.lag"}
            assert pushes[-1].names == {NAME}
            await reports.subscribe("")
            count = len(pushes)
            await asyncio.sleep(DEFAULT_S)
            assert len(pushes) == count
        assert len(pushes) == count

    simulate_reports(monkeypatch, scenario, subscribed=False, more=1)


def test_change_of_temporality_begins_with_the_last_accepted_push(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        kinds = iter([True, False, True])

        def change(request: Any, response: Any) -> Any:
            response.delta_temporality = next(kinds)
            return response

        reports.world.cluster.alter(ASK, change)
        async with Client(**reports.options()):
            for count in (3, 7, 10):
                await reports.until(count, PUSH)
                await asyncio.sleep(0.1)
                if count < 10:
                    reports.world.cluster.fail(PUSH, UNKNOWN_SUBSCRIPTION_ID, times=1)
        values = [push.sums[NAME] for push in reports.pushed.pushes]
        # The value increases by 1 at each push. A push was refused after the 3rd and the 6th push.
        assert values == [1, 1, 1, 2, 3, 4, 2, 1, 1]

    simulate_reports(monkeypatch, scenario)


def test_series_by_partition_are_omitted_if_all_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        limits = iter([100_000, 2_000])

        def change(request: Any, response: Any) -> Any:
            response.telemetry_max_bytes = next(limits)
            return response

        reports.world.cluster.alter(ASK, change)
        async with Client(**reports.options()) as client:
            await reports.until(1, PUSH)
            await asyncio.sleep(0.1)
            assert not [name for name in client.metrics() if name.startswith("telemetry.")]
            reports.world.cluster.fail(PUSH, UNKNOWN_SUBSCRIPTION_ID, times=1)
            await reports.until(3, PUSH)
            await asyncio.sleep(0.1)
            assert client.metrics()["telemetry.partitions.omitted"] == 1
            sizes = [len(push.metrics.resource_metrics) for push in reports.pushed.pushes]
            assert sizes == [101, 1]

    simulate_reports(monkeypatch, scenario, more=100)


def test_metrics_that_are_too_large_are_split_over_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        reports.fake.sums = 30

        def change(request: Any, response: Any) -> Any:
            response.telemetry_max_bytes = 1_000
            return response

        reports.world.cluster.alter(ASK, change)
        async with Client(**reports.options()) as client:
            await reports.until(3, PUSH)
            assert reports.fake.collected == 1
            assert client.metrics()["telemetry.pushes.split"] == 1
            reports.world.cluster.fail(PUSH, UNKNOWN_SUBSCRIPTION_ID, times=1)
            await reports.until(20, PUSH)
            await asyncio.sleep(0.1)
        assert all(len(each.metrics) <= 1_000 for each in reports.messages(PUSH))
        regular = reports.pushed.pushes[:-1]
        assert all(len(push.taken) == 1 for push in regular)
        moments = [push.taken.pop() for push in regular]
        assert moments == sorted(moments)
        assert len(set(moments)) < len(moments) / 2
        # The total of each sum lacks at most the increases of the last two collections.
        total = reports.pushed.total
        values = {total[f"{SUMS}.{number}"] for number in range(30)}
        assert max(values) <= reports.fake.value
        assert min(values) >= reports.fake.value - 2

    simulate_reports(monkeypatch, scenario)


@pytest.mark.parametrize("early", [True, False], ids=["early", "refused"])
def test_all_parts_of_the_last_metrics_are_pushed_when_the_broker_accepts_them_early(
    monkeypatch: pytest.MonkeyPatch, early: bool
) -> None:
    """Kafka refuses a push that comes too early, but never the terminating one."""

    def change(request: Any, response: Any) -> Any:
        response.telemetry_max_bytes = 1_000
        return response

    def accept(request: Any, response: Any) -> Any:
        response.error_code = 0
        return response

    async def scenario(reports: Reports) -> None:
        reports.fake.sums = 30
        reports.world.cluster.alter(ASK, change)
        async with Client(**reports.options()):
            await reports.until(1, PUSH)
            if early:
                reports.world.cluster.alter(PUSH, accept)
            before = len(reports.messages(PUSH))
        last = reports.messages(PUSH)[before:]
        assert [each.terminating for each in last[:-1]] == [False] * (len(last) - 1)
        assert last[-1].terminating
        assert len(last) > 2 if early else len(last) == 2

    simulate_reports(monkeypatch, scenario)


def test_brokers_that_announce_nothing_are_asked_nothing_until_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        cluster = reports.world.cluster
        cluster.limit_versions({ASK: None, PUSH: None})
        async with Client(**reports.options()) as client:
            with pytest.raises(UnsupportedVersionError):
                await client.client_instance_id(timeout=5)
            with pytest.raises(ApiTimeoutError):
                await client.client_instance_id(timeout=0)
            await asyncio.sleep(1_000)
            assert not reports.requests
            cluster.reset()
            await asyncio.sleep(100)
            assert not reports.requests
            cluster.disconnect()
            await reports.until(1, PUSH)

    simulate_reports(monkeypatch, scenario)


# -- the client instance id


def test_client_instance_id_is_requested_immediately_and_never_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()) as client:
            async with Producer(client=client) as producer:
                with pytest.raises(ApiTimeoutError):
                    await client.client_instance_id(timeout=0)
                began = reports.world.now
                ids = await asyncio.gather(
                    *(each.client_instance_id() for each in (client, producer, client))
                )
                assert reports.world.now - began < 0.1
                assert len(set(ids)) == 1
                await asyncio.sleep(100)
                assert await producer.client_instance_id(timeout=0) == ids[0]
            assert [api for _, api, _, _ in reports.requests].count(ASK) == 1
            assert {push.instance_id for push in reports.pushed.pushes} == {ids[0]}
        async with Client(**reports.options(enable_metrics_push=False)) as client:
            with pytest.raises(IllegalStateError, match="enable_metrics_push"):
                await client.client_instance_id()
            await asyncio.sleep(100)
            assert client.health().telemetry == "disabled"
        assert [api for _, api, _, _ in reports.requests].count(ASK) == 1

    simulate_reports(monkeypatch, scenario)


def test_client_instance_id_waits_through_lost_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()) as client:
            reports.world.cluster.drop(ASK, times=3)
            began = reports.world.now
            await client.client_instance_id()
            assert reports.world.now - began < 10
            reports.world.cluster.pause(1)
        async with Client(**reports.options(start_without_brokers=True)) as client:
            waiting = asyncio.create_task(client.client_instance_id())
            await asyncio.sleep(1)
            await client.close()
            with pytest.raises(ClosedError):
                await waiting

    simulate_reports(monkeypatch, scenario)


# -- brokers that come and go


def test_id_is_kept_after_a_rebootstrap_to_the_same_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(reports: Reports) -> None:
        world = reports.world
        name_leads_to(world, OLD)
        options = {**reports.options(), "bootstrap_servers": bootstrap_servers(world)}
        async with Client(**options) as client:
            await reports.until(2, PUSH)
            instance_id = await client.client_instance_id()
            stop_all(world)
            move_brokers(world, NEW)
            name_leads_to(world, NEW)
            await asyncio.sleep(60)
            await reports.until(5, PUSH)
            await asyncio.sleep(0.1)
            reports.check_nothing_is_lost()
        asked = [each.client_instance_id for each in reports.messages(ASK)]
        assert asked[0].int == 0
        assert set(asked[1:]) <= {instance_id}
        assert {push.instance_id for push in reports.pushed.pushes} == {instance_id}
        assert reports.pushed.pushes[-1].terminating

    simulate_reports(monkeypatch, scenario, brokers=3, topics={"t": 3}, replication=3)


def test_pushes_go_on_while_brokers_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        cluster = reports.world.cluster
        async with Producer(**reports.options(metadata_max_age_ms=5_000)) as producer:
            for turn in range(12):
                broker = turn % 3 + 1
                cluster.stop(broker)
                await producer.send_and_wait("t", b"x")
                await asyncio.sleep(17)
                cluster.start(broker)
                await asyncio.sleep(5)
            assert await producer.client_instance_id(timeout=0)
        times = reports.times(PUSH)
        assert max(span(times, index) for index in range(1, len(times))) < 3 * INTERVAL_S
        assert len({push.instance_id for push in reports.pushed.pushes}) == 1
        reports.check_nothing_is_lost()

    simulate_reports(monkeypatch, scenario, brokers=3, topics={"t": 3}, replication=3)


def test_a_changed_subscription_is_one_line_of_information_for_each_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiokclient.telemetry")

    async def scenario(reports: Reports) -> None:
        async with Client(**reports.options()):
            for _ in range(2):
                await reports.until(len(reports.times(PUSH)) + 1, PUSH)
                reports.world.cluster.fail(PUSH, UNKNOWN_SUBSCRIPTION_ID, times=1)
                reports.world.cluster.fail(ASK, THROTTLING_QUOTA_EXCEEDED, times=1)
                await reports.until(len(reports.times(PUSH)) + 3, PUSH)

    simulate_reports(monkeypatch, scenario)
    refusals = [
        record.levelname
        for record in caplog.records
        if getattr(record, "event", None) == "telemetry_refused"
    ]
    assert refusals == ["INFO"]
    assert not warnings(caplog.records)
