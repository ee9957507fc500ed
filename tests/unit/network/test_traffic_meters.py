"""The exact numbers that the meters of brokers have, and the texts of the wire log."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Any

import pytest

from aiokclient.clock import SystemClock
from aiokclient.errors import DisconnectedError
from aiokclient.events import Throttled
from aiokclient.metrics import UNCOUNTED, Metrics, Reading
from aiokclient.network.connection import ConnectedBroker, PendingRequest
from aiokclient.network.event_hub import EventHub
from aiokclient.network.traffic import DROPPED, NAMED, STRUCTS, Meter, Traffic
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokclient.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from aiokclient.protocol.messages.produce import ProduceRequest

PREFIX = 4
"""Bytes of the length of each response, which counts as received."""


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def traffic(metrics: Metrics) -> Traffic:
    return Traffic(metrics, "test")


def request(message: Any = None, version: int | None = 3) -> PendingRequest:
    return PendingRequest(message or ListGroupsRequest(), version, 10.0, 30.0, True)


def exchange(
    meter: Meter,
    size: int = 100,
    answer: int = 20,
    *,
    latency_s: float = 0.25,
    throttle_ms: int = 0,
    message: Any = None,
    response: Any = None,
    version: int | None = 3,
) -> None:
    broker, sent = ConnectedBroker(meter.node_id, "host", 9092), request(message, version)
    meter.request_sizes.observe(size)
    meter.traffic.log_request(broker, sent.api, sent.version or 0, size)
    answered = ListGroupsResponse() if response is None else response
    meter.count_response(broker, sent, answered, answer, sent.since + latency_s, throttle_ms)


def reading(traffic: Traffic, key: str, again: bool | None = None) -> dict[str, Reading]:
    """Return the readings of a key by node, or by "" for those of all nodes."""
    found = traffic.own_metrics.take_sample(again=again).read_key(key)
    return {dict(labels).get("node_id", ""): each for labels, each in found.items()}


def counts(traffic: Traffic, key: str) -> tuple[float, float]:
    """Return the number and the sum of all observations of a key."""
    each = reading(traffic, key)[""]
    return each.number, each.total


def test_requests_and_responses_are_counted_with_their_bytes(
    metrics: Metrics, traffic: Traffic
) -> None:
    meter = traffic.get_meter(1)
    assert traffic.get_meter(1) is meter
    meter.request_sizes.observe(70)
    meter.count_setup_response(30)
    meter.count_setup_response(5)
    exchange(meter, 100, 20)
    exchange(meter, 200, 40)
    assert counts(traffic, "requests") == (3, 370)
    assert counts(traffic, "responses") == (4, 95 + 4 * PREFIX)
    assert counts(traffic, "io") == (7, 7)
    assert reading(traffic, "node.requests")["node-1"][:2] == (3, 370)
    assert reading(traffic, "node.responses")["node-1"][:2] == (4, 95 + 4 * PREFIX)
    snapshot = metrics.take_snapshot()
    assert snapshot["client.sent.bytes{broker=1}"] == 370
    assert snapshot["client.received.bytes{broker=1}"] == 60


def test_latencies_are_those_of_requests_that_do_not_set_up_a_connection(traffic: Traffic) -> None:
    meter = traffic.get_meter(1)
    meter.count_setup_response(30)
    exchange(meter, latency_s=0.25)
    exchange(meter, latency_s=0.5)
    assert reading(traffic, "node.latencies")["node-1"][:3] == (2, 0.75, 0.5)


def test_metrics_of_bootstrap_servers_have_their_own_name(
    metrics: Metrics, traffic: Traffic
) -> None:
    exchange(traffic.get_meter(-1), 100)
    exchange(traffic.get_meter(0), 200)
    snapshot = metrics.take_snapshot()
    assert snapshot["client.sent.bytes{broker=bootstrap}"] == 100
    assert snapshot["client.sent.bytes{broker=0}"] == 200


def test_throttles_of_produce_responses_are_measured_with_those_that_are_zero(
    metrics: Metrics, traffic: Traffic
) -> None:
    meter = traffic.get_meter(1)
    assert reading(traffic, "throttles")[""] == Reading(0, 0, -math.inf, math.inf)
    exchange(meter, message=ProduceRequest())
    assert reading(traffic, "throttles")[""][:3] == (1, 0, 0.0)
    exchange(meter, message=ProduceRequest(), throttle_ms=1)
    exchange(meter, message=ProduceRequest(), throttle_ms=500)
    exchange(meter, throttle_ms=4000)  # Not a Produce request.
    assert reading(traffic, "throttles")[""][:3] == (3, 0.501, 0.5)
    assert reading(traffic, "latencies.Produce")[""][:2] == (3, 0.75)
    found: Any = metrics.take_snapshot()["client.throttle.seconds{broker=1}"]
    assert found["count"] == 3
    assert found["sum"] == pytest.approx(4.501)


def test_extremes_of_a_reading_are_repeated_only_if_it_was_not_accepted(traffic: Traffic) -> None:
    exchange(traffic.get_meter(1), 100, latency_s=0.5, throttle_ms=300, message=ProduceRequest())
    for again, largest in ((None, 100), (False, 100), (True, 100), (False, -math.inf)):
        assert (
            traffic.own_metrics.take_sample(again=again).read_key("requests")[()].largest == largest
        )
    exchange(traffic.get_meter(1), 100, latency_s=0.5, throttle_ms=300, message=ProduceRequest())
    sample = traffic.own_metrics.take_sample(again=False)
    assert sample.read_key("throttles")[()].largest == 0.3
    assert sample.read_key("latencies.Produce")[()].largest == 0.5
    sample = traffic.own_metrics.take_sample(again=False)
    assert sample.read_key("throttles")[()].largest == -math.inf
    assert sample.read_key("latencies.Produce")[()].largest == -math.inf


def test_authentications_are_counted_by_kind(traffic: Traffic) -> None:
    keys = ("authentications", "reauthentications")
    all_keys = [*keys, *(f"{key}.failed" for key in keys)]
    sample = traffic.own_metrics.take_sample(again=None)
    assert [sample.read_key(key) for key in all_keys] == [{(): Reading(0, 0)}] * 4
    assert sample.has_key("reauthentications.seconds")
    traffic.count_authentication(None)
    traffic.count_authentication(0.0)
    traffic.count_authentication(2.0)
    traffic.count_failed_authentication(again=False)
    for _ in range(4):
        traffic.count_failed_authentication(again=True)
    sample = traffic.own_metrics.take_sample(again=None)
    assert [sample.read_key(key)[()].number for key in all_keys] == [1, 2, 1, 4]
    assert sample.read_key("reauthentications.seconds")[()][:2] == (2, 2.0)


def test_sums_stay_when_a_broker_leaves_and_its_late_responses_count(
    metrics: Metrics, traffic: Traffic
) -> None:
    left = traffic.get_meter(0)
    exchange(left, 100, 20)
    exchange(traffic.get_meter(1), 200, 40)
    traffic.keep_brokers({1})
    exchange(left, 1000, 10)
    assert set(reading(traffic, "node.requests")) == {"node-1"}
    assert counts(traffic, "requests") == (3, 1300)
    assert counts(traffic, "responses") == (3, 70 + 3 * PREFIX)
    assert "client.sent.bytes{broker=0}" not in metrics.take_snapshot()
    # The broker returns with measurements of its own.
    exchange(traffic.get_meter(0), 7)
    assert reading(traffic, "node.requests")["node-0"][:2] == (1, 7)
    assert counts(traffic, "requests") == (4, 1307)


def test_only_the_meters_of_the_brokers_that_left_last_count_late_responses(
    traffic: Traffic,
) -> None:
    meters = [traffic.get_meter(node_id) for node_id in range(DROPPED + 1)]
    assert DROPPED == 16
    for meter in meters:
        exchange(meter, 100, 20)
        others = {each.node_id for each in meters if each.node_id > meter.node_id}
        traffic.keep_brokers(others)
    exchange(meters[0], 5000)
    assert counts(traffic, "requests") == (17, 1700)
    assert counts(traffic, "responses") == (17, 340 + 17 * PREFIX)
    exchange(meters[1], 5000)
    assert counts(traffic, "requests") == (18, 6700)
    # The sums of two meters that get no further responses are added.
    exchange(traffic.get_meter(99), 3)
    traffic.keep_brokers(set())
    assert counts(traffic, "requests") == (19, 6703)
    assert reading(traffic, "node.requests") == {}


def test_sums_of_a_bootstrap_server_stay_in_its_own_series(traffic: Traffic) -> None:
    exchange(traffic.get_meter(-1), 100, latency_s=0.5)
    traffic.keep_brokers(set())
    assert reading(traffic, "node.requests")["node--1"][:2] == (1, 100)
    exchange(traffic.get_meter(-1), 11)
    assert reading(traffic, "node.requests")["node--1"][:2] == (2, 111)
    traffic.keep_brokers(set())
    for node_id in range(DROPPED):
        traffic.get_meter(node_id)
    traffic.keep_brokers(set())
    found = reading(traffic, "node.requests")
    assert set(found) == {"node--1"}
    assert found["node--1"] == Reading(2, 111), "a past time span has no extremes"
    assert counts(traffic, "requests") == (2, 111)
    assert reading(traffic, "node.latencies")["node--1"][:2] == (2, 0.75)
    exchange(traffic.get_meter(-1), 9)
    assert reading(traffic, "node.requests")["node--1"][:2] == (3, 120)


@pytest.mark.parametrize(("node_id", "broker"), [(-1, None), (0, 0), (1, 1)])
async def test_a_throttle_is_an_event_with_its_broker(
    metrics: Metrics, node_id: int, broker: int | None
) -> None:
    hub = EventHub(SystemClock())
    reader = hub.open_reader()
    meter = Traffic(metrics, "test", events=hub).get_meter(node_id)
    exchange(meter)
    exchange(meter, throttle_ms=250)
    event = await asyncio.wait_for(anext(reader), 10)
    assert isinstance(event, Throttled)
    assert (event.broker, event.api, event.throttle_ms) == (broker, "ListGroups", 250)


# -- the log


@pytest.fixture
def wire(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    return caplog


@pytest.mark.parametrize(
    ("node_id", "named", "shown"),
    [
        (-1, "bootstrap", "bootstrap server host:9092"),
        (0, "0", "broker 0 (host:9092)"),
        (1, "1", "broker 1 (host:9092)"),
    ],
)
def test_the_wire_log_has_the_request_and_its_response(
    traffic: Traffic, wire: pytest.LogCaptureFixture, node_id: int, named: str, shown: str
) -> None:
    exchange(traffic.get_meter(node_id), 100, 20)
    asked, answered = wire.records
    assert f"ListGroups v3 to {shown}: request of 100 bytes" in asked.getMessage()
    text = f"ListGroups v3 from {shown}: response of 20 bytes after 0.250 s"
    assert answered.getMessage().endswith(text)
    assert asked.__dict__["event"] == "wire_request"
    assert asked.__dict__["version"] == answered.__dict__["version"] == 3
    assert asked.__dict__["broker"] == answered.__dict__["broker"] == named
    assert answered.__dict__["error"] is None


def test_the_wire_log_shows_version_0_as_it_is(
    traffic: Traffic, wire: pytest.LogCaptureFixture
) -> None:
    exchange(traffic.get_meter(1), version=0)
    exchange(traffic.get_meter(1), version=None)
    assert [record.__dict__["version"] for record in wire.records] == [0, 0, 0, 0]


@pytest.mark.parametrize(("version", "shown"), [(None, "?"), (0, "0"), (4, "4")])
def test_the_wire_log_has_a_request_without_response(
    traffic: Traffic, wire: pytest.LogCaptureFixture, version: int | None, shown: str
) -> None:
    broker = ConnectedBroker(1, "host", 9092)
    traffic.log_failure(broker, request(version=version), DisconnectedError("gone"))
    [record] = wire.records
    text = f"ListGroups v{shown} to broker 1 (host:9092): no response: DisconnectedError"
    assert record.getMessage().endswith(text)
    assert record.__dict__["version"] == version


def test_nothing_is_logged_above_the_level_debug(
    traffic: Traffic, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokclient.wire")
    exchange(traffic.get_meter(1))
    traffic.log_failure(ConnectedBroker(1, "host", 9092), request(), DisconnectedError("gone"))
    assert caplog.records == []


@pytest.mark.parametrize("name", ["aiokclient.wire", "aiokclient"])
def test_a_level_that_changes_applies_to_the_next_request_and_response(
    traffic: Traffic, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    meter = traffic.get_meter(1)
    counts = []
    # Each exchange writes two lines: one for the request, and one for the response.
    for level in (logging.INFO, logging.DEBUG, logging.INFO, logging.DEBUG):
        caplog.set_level(level, name)
        for _ in range(2):
            exchange(meter)
        counts.append(len(caplog.records))
        caplog.clear()
    assert counts == [0, 4, 0, 4]
    logger = logging.getLogger("aiokclient.wire")
    try:
        logger.disabled = True
        exchange(meter)
        logger.disabled = False
        logging.disable(logging.DEBUG)
        exchange(meter)
        assert caplog.records == []
    finally:
        logger.disabled = False
        logging.disable(logging.NOTSET)
    exchange(meter)
    assert len(caplog.records) == 2


def of_topics(*codes: int) -> MetadataResponse:
    return MetadataResponse(topics=[MetadataResponseTopic(error_code=code) for code in codes])


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (ListGroupsResponse(error_code=0), None),
        (ListGroupsResponse(error_code=15), "COORDINATOR_NOT_AVAILABLE"),
        (ListGroupsResponse(error_code=9999), "9999"),
        (of_topics(0, 3, 0, 3), "UNKNOWN_TOPIC_OR_PARTITION"),
        (of_topics(*range(9001, 9001 + NAMED)), "9005, 9004, 9003, 9002, 9001"),
        (of_topics(*range(9001, 9002 + NAMED)), "9006, 9005, 9004, 9003, 9002, ..."),
        (b"not a struct", None),
    ],
)
def test_the_wire_log_names_the_errors_in_a_response(
    traffic: Traffic, wire: pytest.LogCaptureFixture, response: Any, error: str | None
) -> None:
    exchange(traffic.get_meter(1), response=response)
    assert wire.records[-1].__dict__["error"] == error
    assert wire.records[-1].getMessage().endswith(f" s, {error}" if error else " s")


@pytest.mark.parametrize(
    ("topics", "at", "found"),
    [(STRUCTS, 0, False), (STRUCTS, 1, True), (STRUCTS - 1, 0, True), (STRUCTS + 1, -1, False)],
)
def test_the_wire_log_searches_a_limited_part_of_a_large_response(
    traffic: Traffic, wire: pytest.LogCaptureFixture, topics: int, at: int, found: bool
) -> None:
    assert STRUCTS == 2000
    codes = [0] * topics
    codes[at] = 9001
    exchange(traffic.get_meter(1), response=of_topics(*codes))
    assert wire.records[-1].__dict__["error"] == ("9001" if found else None)


def test_responses_are_counted_after_a_request_not_while_a_task_waits_for_one(
    metrics: Metrics, traffic: Traffic
) -> None:
    meter = traffic.get_meter(1)
    for _ in range(3 * UNCOUNTED):
        exchange(meter)
    latency = metrics.histogram("client.request.seconds", unit="s", api="ListGroups", broker="1")
    assert len(latency.uncounted) == 3 * UNCOUNTED
    meter.count_latest()
    assert not latency.uncounted
    assert not meter.request_sizes.uncounted
    assert counts(traffic, "requests") == (3 * UNCOUNTED, 300 * UNCOUNTED)
