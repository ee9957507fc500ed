"""Tests that no response to a telemetry request changes the client's other requests."""

import asyncio
import random
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from reporting import ASK, MAIN, PUSH, Reports, simulate_reports, warnings
from thinned import in_turns, one_in

from aiokclient import Consumer, Producer, State, TopicPartition
from aiokclient.errors import ERRORS_BY_CODE
from aiokclient.protocol import ApiKey

Change = Callable[[random.Random, ApiKey, Any], Any]
RECORDS = 60
RECONNECTS = (ApiKey.API_VERSIONS, ApiKey.METADATA)
"""The requests that a client sends again on a new connection after it has lost one."""


def answer(**fields: Any) -> Change:
    """Return a function that sets these fields in responses, if the response has them."""

    def change(rng: random.Random, api: ApiKey, response: Any) -> Any:
        for name, value in fields.items():
            if hasattr(response, name):
                setattr(response, name, value() if callable(value) else value)
        return response

    return change


@cache
def make_prefixes() -> list[str]:
    """Return a million prefixes, which take too long to be made when tests are collected."""
    return [f"org.{n}" for n in range(1_000_000)]


def any_error(rng: random.Random, api: ApiKey, response: Any) -> Any:
    """Return a response with a random error code that does not end the pushes."""
    response.error_code = rng.choice([117, 76, 118, 89])
    return response


def anything(rng: random.Random, api: ApiKey, response: Any) -> Any:
    """Return a valid response with random numbers and texts."""
    numbers = [0, 1, -1, 2**31 - 1, -(2**31), 100, 1_000]
    response.throttle_time_ms = rng.choice([0, 0, 0, 50])
    response.error_code = rng.choice([0, 0, 0, 117, 76, 118, 89])
    if api is ASK:
        response.client_instance_id = rng.choice([uuid.UUID(int=0), uuid.uuid4()])
        response.subscription_id = rng.choice(numbers)
        response.push_interval_ms = rng.choice([100, 200, 1_000, 0])
        response.telemetry_max_bytes = rng.choice(numbers)
        response.delta_temporality = rng.random() < 0.5
        response.accepted_compression_types = rng.choices(range(-128, 128), k=rng.randrange(200))
        response.requested_metrics = rng.choices(["", "*", "org", "x" * 10_000, "\0"], k=3)
    return response


HOSTILE: dict[str, Change | None] = {
    "an interval of 0": answer(push_interval_ms=0),
    "an interval of -1": answer(push_interval_ms=-1),
    "an interval of 1 ms": answer(push_interval_ms=1),
    "an interval of 2^31-1": answer(push_interval_ms=2**31 - 1),
    "a million prefixes": answer(requested_metrics=make_prefixes),
    "names of 100 MB": answer(requested_metrics=["x" * 32_767] * 3_000),
    "a null id": answer(client_instance_id=uuid.UUID(int=0)),
    "a reserved id": answer(client_instance_id=uuid.UUID(int=1)),
    "other ids": answer(client_instance_id=uuid.uuid4, push_interval_ms=100),
    "a new subscription each time": answer(error_code=117, push_interval_ms=1),
    "pushes of no bytes": answer(telemetry_max_bytes=1, push_interval_ms=100),
    "negative limits": answer(telemetry_max_bytes=-1, subscription_id=-1, throttle_time_ms=-1),
    "errors without end": any_error,
    "random responses": anything,
    "silence": None,
}


def other_requests(reports: Reports, *, but: tuple[ApiKey, ...] = ()) -> list[tuple[ApiKey, Any]]:
    return [
        (each.api, each.message)
        for each in reports.world.cluster.requests
        if each.client_id == MAIN and each.api not in (ASK, PUSH, *but)
    ]


async def produce(client: Any, reports: Reports, number: int) -> None:
    await client.send_and_wait("t", str(number).encode(), partition=0)


async def consume(client: Any, reports: Reports, number: int) -> None:
    reports.world.cluster.produce("t", [str(number).encode()])
    (record,) = await client.poll(timeout=10.0)
    assert record.value == str(number).encode()


def consumer(**options: Any) -> Consumer[Any, Any]:
    made = Consumer(auto_offset_reset="earliest", **options)
    made.assign([TopicPartition("t", 0)])
    return made


KINDS: dict[str, tuple[Any, Any]] = {
    "producer": (Producer, produce),
    "consumer": (consumer, consume),
}


def check_bounds(reporter: Any) -> None:
    """Check that the reporter limits the data that it keeps from the brokers' responses."""
    if reporter.status == "disabled":  # It keeps nothing.
        return
    subscription = reporter._subscription
    if subscription is not None:
        assert len(subscription.names._prefixes) <= 10_000
        assert all(len(each) <= 1_000 for each in subscription.names._prefixes)
    assert len(reporter._warned) <= 10
    assert len(reporter._pushes._accumulation._accepted) <= 1


def work(
    monkeypatch: pytest.MonkeyPatch, kind: str, hostile: Change | None, *, enabled: bool
) -> tuple[int, list[tuple[ApiKey, Any]]]:
    """Work for a minute. Return the number of telemetry requests, and all other requests."""
    found: list[Any] = []
    make, step = KINDS[kind]

    async def scenario(reports: Reports) -> None:
        cluster, rng = reports.world.cluster, random.Random(1)
        for api in (ASK, PUSH):
            if hostile is None:
                cluster.delay(api, 3_600)
                continue

            def change(request: Any, response: Any, api: ApiKey = api) -> Any:
                return hostile(rng, api, response)

            cluster.alter(api, change)
        options = reports.options(enable_metrics_push=enabled, request_timeout_ms=5_000)
        async with make(**options, metadata_max_age_ms=20_000) as client:
            for number in range(RECORDS):
                await step(client, reports, number)
                await asyncio.sleep(1)
            assert client.state is State.RUNNING
            assert not client.health().telemetry.startswith("failed")
            check_bounds(client._cluster.telemetry)
        but = RECONNECTS if hostile is None else ()
        found.append((len(reports.requests), other_requests(reports, but=but)))
        assert len(reports.requests) <= 2 * 10 * RECORDS

    simulate_reports(monkeypatch, scenario, more=10)
    count, requests = found[0]
    return count, requests


WITHOUT_TELEMETRY: dict[tuple[str, bool], list[str]] = {}
"""The requests of a client without telemetry, by its kind, and whether reconnects count."""


@pytest.mark.parametrize(("kind", "name"), in_turns(3, KINDS, HOSTILE))
def test_other_requests_are_the_same_as_without_telemetry(
    kind: str, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    count, requests = work(monkeypatch, kind, HOSTILE[name], enabled=True)
    assert len(warnings(caplog.records)) <= 6
    assert count > 0
    case = kind, HOSTILE[name] is None
    if case not in WITHOUT_TELEMETRY:  # Such a client gets no hostile response.
        none, expected = work(monkeypatch, kind, HOSTILE[name], enabled=False)
        assert none == 0
        assert len(expected) > RECORDS
        WITHOUT_TELEMETRY[case] = [repr(each) for each in expected]
    assert [repr(each) for each in requests] == WITHOUT_TELEMETRY[case]


@pytest.mark.parametrize("code", [*one_in(3, list(ERRORS_BY_CODE)), 999, -2, 2**15 - 1])
def test_each_error_leaves_the_client_as_it_is(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(reports: Reports) -> None:
        reports.world.cluster.fail(PUSH, code)
        async with Producer(**reports.options()) as producer:
            await reports.until(1, PUSH)
            await producer.send_and_wait("t", b"x")
            assert producer.health().reasons == ()

    simulate_reports(monkeypatch, scenario)
