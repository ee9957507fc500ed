"""Tests of what is counted and logged about requests and responses."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from scripted import MemoryTransport, response_frame

from aiokclient.errors import DisconnectedError
from aiokclient.metrics import Metrics, Reading
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.event_hub import EventHub
from aiokclient.network.traffic import DROPPED, NAMED, STRUCTS, Traffic, size_of
from aiokclient.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from aiokclient.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

EVERYTHING = dict.fromkeys(range(100), (0, 99))


class Link:
    """A connection to a broker, whose responses come from the test."""

    def __init__(self, traffic: Traffic, node_id: int = 1) -> None:
        self.connection = BrokerConnection(
            node_id, "memory", 9092, client_id="test", traffic=traffic
        )
        self.transport = MemoryTransport(self.connection)
        self.connection.end_setup(EVERYTHING, 1 << 20)
        self.asked = 0

    async def exchange(self, request: Any = None, response: Any = None) -> int:
        """Send a request, answer it, and return the size of the response in bytes."""
        request = ListGroupsRequest() if request is None else request
        response = ListGroupsResponse() if response is None else response
        version = type(request).max_version
        sent = self.connection.send(request, timeout_s=5, version=version)
        frame = response_frame(self.asked, response, version)
        self.asked += 1
        self.transport.feed(frame)
        await sent
        return len(frame)


def series(traffic: Traffic, key: str) -> dict[Any, Reading]:
    found = traffic._take_series(None)[key]
    return dict(found() if callable(found) else found)


def nodes(traffic: Traffic, key: str) -> dict[str, float]:
    """Return the numbers of a series by the names of the nodes."""
    return {labels[0][1]: reading.number for labels, reading in series(traffic, key).items()}


@pytest.mark.parametrize(
    ("node_id", "shown", "label"),
    [(0, "broker 0 (memory:9092)", "0"), (-1, "bootstrap server memory:9092", "bootstrap")],
)
async def test_wire_log_names_the_broker(
    node_id: int, shown: str, label: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    link = Link(Traffic(Metrics(), "test"), node_id)
    await link.exchange()
    lost = link.connection.send(ListGroupsRequest(), timeout_s=5)
    link.connection.close()
    with pytest.raises(DisconnectedError):
        await lost
    for kind, way in (("request", "to"), ("response", "from"), ("failure", "to")):
        (record, *_) = [r for r in caplog.records if r.__dict__["event"] == f"wire_{kind}"]
        assert f" {way} {shown}: " in record.getMessage()
        assert record.__dict__["broker"] == label


@pytest.mark.parametrize("errors", [0, 1, NAMED, NAMED + 1])
async def test_wire_log_names_a_few_errors_of_a_response(
    errors: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    codes = [15, 16, 22, 24, 25, 30][:errors]
    results = [DeletableGroupResult(group_id=f"g{c}", error_code=c) for c in (0, *codes, *codes)]
    link = Link(Traffic(Metrics(), "test"))
    await link.exchange(DeleteGroupsRequest(), DeleteGroupsResponse(results=results))
    (record,) = [r for r in caplog.records if r.__dict__["event"] == "wire_response"]
    named = (record.__dict__["error"] or "").split(", ")
    assert len(set(named)) == len(named)
    assert (named == [""]) is (errors == 0)
    assert len(named) == (errors or 1), "each error once, and dots for those beyond the limit"
    assert ("..." in named) is (errors > NAMED)
    link.connection.close()


async def test_wire_log_searches_only_the_beginning_of_a_large_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "aiokclient.wire")
    link = Link(Traffic(Metrics(), "test"))
    results = [DeletableGroupResult(group_id="g") for _ in range(STRUCTS + 5)]
    results[-1].error_code = 15
    await link.exchange(DeleteGroupsRequest(), DeleteGroupsResponse(results=results))
    (record,) = [r for r in caplog.records if r.__dict__["event"] == "wire_response"]
    assert record.__dict__["error"] is None
    link.connection.close()


async def test_requests_and_responses_are_counted_for_each_broker() -> None:
    metrics = Metrics()
    traffic = Traffic(metrics, "test")
    zero, one = Link(traffic, 0), Link(traffic, 1)
    sizes = [await zero.exchange() for _ in range(2)] + [await one.exchange()]
    assert nodes(traffic, "node.requests") == {"node-0": 2, "node-1": 1}
    assert nodes(traffic, "node.responses") == {"node-0": 2, "node-1": 1}
    assert nodes(traffic, "node.latencies") == {"node-0": 2, "node-1": 1}
    (responses,) = series(traffic, "responses").values()
    assert (responses.number, responses.total) == (3, sum(sizes))
    (requests,) = series(traffic, "requests").values()
    assert requests.number == 3
    assert requests.total == len(zero.transport.sent) + len(one.transport.sent)
    (io,) = series(traffic, "io").values()
    assert io.number == 6
    shown = metrics.take_snapshot()
    assert shown["client.sent.bytes{broker=0}"] == len(zero.transport.sent)
    assert shown["client.received.bytes{broker=1}"] == sizes[-1] - 4
    zero.connection.close()
    one.connection.close()


@pytest.mark.parametrize("count", [1, DROPPED + 1, DROPPED + 5])
async def test_sums_remain_when_brokers_leave_the_cluster(count: int) -> None:
    metrics = Metrics()
    traffic = Traffic(metrics, "test")
    links = [Link(traffic, node_id) for node_id in range(count)]
    for link in links:
        await link.exchange()
    before = {key: series(traffic, key) for key in ("requests", "responses")}
    traffic.keep_brokers(set())
    assert nodes(traffic, "node.requests") == {}
    for key, sums in before.items():
        (known,), (found,) = sums.values(), series(traffic, key).values()
        assert (found.number, found.total) == (known.number, known.total)
    assert not [name for name in metrics.take_snapshot() if "broker=" in name]
    await links[-1].exchange()
    (found,) = series(traffic, "responses").values()
    assert found.number == count + 1, "a late response of a broker that has left counts, too"
    for link in links:
        link.connection.close()


async def test_sums_of_a_bootstrap_server_remain_when_its_connections_are_not_used_any_more() -> (
    None
):
    traffic = Traffic(Metrics(), "test")
    for turn in range(2):
        links = [Link(traffic, -number - 1) for number in range(DROPPED + 2)]
        for link in links:
            await link.exchange()
            link.connection.close()
        expected = {f"node-{-number - 1}": turn + 1 for number in range(DROPPED + 2)}
        assert nodes(traffic, "node.requests") == expected
        traffic.keep_brokers(set())
        assert nodes(traffic, "node.requests") == expected
    (requests,) = series(traffic, "requests").values()
    assert requests.number == 2 * (DROPPED + 2)


async def test_open_connections_are_those_that_were_opened_and_not_closed() -> None:
    traffic = Traffic(Metrics(), "test")
    links = [Link(traffic), Link(traffic)]
    (connections,) = series(traffic, "connections").values()
    assert connections.number == 2
    links[0].connection.close()
    await asyncio.sleep(0)
    (connections,) = series(traffic, "connections").values()
    assert connections.number == 1
    links[1].connection.close()


async def test_logins_are_counted_apart_from_their_repetitions() -> None:
    traffic = Traffic(Metrics(), "test")
    traffic.count_authentication(None)
    for seconds in (0.5, 0.0):
        traffic.count_authentication(seconds)
    traffic.count_failed_authentication(again=False)
    traffic.count_failed_authentication(again=True)
    traffic.count_failed_authentication(again=True)
    value = traffic.own_metrics.counter
    assert value("authentications").value == 1
    assert value("reauthentications").value == 2
    assert value("authentications.failed").value == 1
    assert value("reauthentications.failed").value == 2
    assert traffic.own_metrics.spread("reauthentications.seconds").total == 0.5


async def test_throttled_response_is_an_event() -> None:
    hub = EventHub(type("Clock", (), {"time_ms": staticmethod(lambda: 7)})())
    events = hub.open_reader()
    traffic = Traffic(Metrics(), "test", events=hub)
    link = Link(traffic, 0)
    await link.exchange(response=ListGroupsResponse(throttle_time_ms=1))
    event = await anext(events)
    assert (type(event).__name__, event.broker, event.api) == ("Throttled", 0, "ListGroups")
    link.connection.close()


def test_size_counts_the_bytes_of_views() -> None:
    wide = memoryview(bytes(8)).cast("I")
    assert size_of([b"abc", wide, bytearray(2)]) == 13
