"""The spans of share consumers, and of workers over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry.trace import StatusCode
from traces import Traces, current, ids, links, parent

from aiokclient import Admin, Client, Producer, ShareConsumer
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker import Exponential, Retry, Worker


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with (
        EmbeddedCluster(topics={"jobs": 1}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
    ):
        async with Admin(client=client) as admin:
            await admin.create_share_group("team", ["jobs"], start="earliest")
        yield client


def make_consumer(client: Client) -> ShareConsumer[Any, Any]:
    return ShareConsumer("jobs", client=client, group_id="team")


async def fill(client: Client, traces: Traces, count: int) -> None:
    async with Producer(client=client) as producer:
        with traces.of(producer):
            for number in range(count):
                await producer.send("jobs", b"%d" % number)


async def test_each_run_over_a_share_consumer_has_a_span(client: Client) -> None:
    traces, seen = Traces(), []

    async def work(record: Any) -> None:
        seen.append(current())
        if len(seen) == 1:
            raise LookupError("no such job")
        worker.stop()

    await fill(client, traces, 1)
    async with make_consumer(client) as consumer:
        worker = Worker(consumer, work, retry=Retry(2, backoff=Exponential(0.001, max=0.001)))
        with traces.of(consumer):
            await worker.run()
    sent = traces.one("send jobs")
    failed, repeated = traces.named("process jobs")
    assert seen == [ids(failed)[1], ids(repeated)[1]]
    for number, span in enumerate((failed, repeated), 1):
        assert parent(span) == ids(sent)
        assert links(span) == [ids(sent)]
        assert span.attributes is not None
        assert span.attributes["aiokclient.attempt"] == number
        assert span.attributes["messaging.consumer.group.name"] == "team"
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "LookupError"
    assert repeated.status.status_code is StatusCode.UNSET


async def test_spans_of_tracked_records_end_when_they_are_settled(client: Client) -> None:
    traces = Traces()
    await fill(client, traces, 4)

    async def fail(consumer: Any, record: Any) -> None:
        async with consumer.processing(record):
            raise LookupError("no such job")

    async with make_consumer(client) as consumer:
        with traces.of(consumer):
            found: list[Any] = []
            async for record in consumer.tracked():
                found.append(record)
                if len(found) == 4:
                    break
            assert traces.named("process jobs") == []
            assert consumer.done([found[0], found[1]])
            assert consumer.reject(found[2])
            assert len(traces.named("process jobs")) == 3
            with pytest.raises(LookupError):
                await fail(consumer, found[3])
            *_, failed = traces.named("process jobs")
            assert failed.attributes is not None
            assert failed.attributes["messaging.kafka.offset"] == 3
            assert failed.attributes["error.type"] == "LookupError"
            outcomes = await consumer.commit(found[:3])
            assert outcomes == dict.fromkeys(found[:3])
            assert traces.one("commit jobs")


async def test_requests_and_loops_over_a_share_consumer_have_spans(client: Client) -> None:
    traces = Traces()
    await fill(client, traces, 4)
    async with make_consumer(client) as consumer:
        with traces.of(consumer):
            record = await consumer.get(60.0)
            assert record is not None
            (polled,) = traces.named("poll jobs")
            assert links(polled) == [ids(traces.named("send jobs")[0])]
            async for record in consumer:
                assert record.value == b"1"
                within = current()
                break
            (processed,) = traces.named("process jobs")
            assert ids(processed)[1] == within
            async for records in consumer.batches(max_records=2):
                assert records
                await asyncio.sleep(0)
                break
            assert len(traces.named("poll jobs")) == 2
            assert len(traces.named("process jobs")) == 2
