"""The spans of producers and consumers: parents, links, attributes, and W3C context in headers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from traces import Traces, current, ids, links, parent

from aiokclient import Consumer, Producer, ProducerRecord, TopicPartition, transform
from aiokclient.errors import (
    ClosedError,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    SerializationError,
)
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.protocol import ApiKey
from aiokclient.telemetry.otel import instrument
from aiokclient.testing import EmbeddedCluster

COUNT = "messaging.batch.message_count"


def reading(cluster: EmbeddedCluster, *topics: str, **options: Any) -> Consumer[Any, Any]:
    return Consumer(
        *(topics or ("orders",)),
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **options,
    )


def writing(cluster: EmbeddedCluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **options)


def carried(record: Any) -> tuple[int, int]:
    """Return the ids in the header `traceparent` of a record."""
    (text,) = [value for name, value in record.headers if name == "traceparent"]
    _, trace_id, span_id, _ = text.decode().split("-")
    return int(trace_id, 16), int(span_id, 16)


async def sent(cluster: EmbeddedCluster, traces: Traces, count: int) -> list[ReadableSpan]:
    """Send records, each with a span of its own."""
    async with writing(cluster) as producer:
        with traces.of(producer):
            for number in range(count):
                await producer.send("orders", b"%d" % number)
    return traces.named("send orders")


# -- producers


async def test_send_has_a_span_until_its_outcome(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with writing(cluster, client_id="shop") as producer:
        with traces.of(producer):
            with traces.tracer.start_as_current_span("order") as order:
                delivery = producer.send("orders", None, key=b"k", headers=[("h", b"v")])
                assert traces.spans == []
                await delivery
            assert order.get_span_context().span_id == traces.one("send orders").parent.span_id
    span = traces.one("send orders")
    host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
    assert span.kind is SpanKind.PRODUCER
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.client.id": "shop",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.tombstone": True,
        "server.address": host,
        "server.port": int(port),
    }
    assert span.status.status_code is StatusCode.UNSET
    (record,) = cluster.records("orders", 0)
    assert record.headers[0] == ("h", b"v")
    assert carried(record) == ids(span)


async def test_send_many_has_one_span_whose_context_all_records_carry(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with writing(cluster) as producer:
        with traces.of(producer):
            items = [b"a", (b"k", b"b"), ProducerRecord("orders", b"c", headers=[("h", b"v")])]
            await producer.gather(producer.send_many("orders", items))
            mixed = [ProducerRecord("orders", b"d"), ProducerRecord("bills", b"e")]
            await producer.gather(producer.send_many("orders", mixed))
            assert await producer.send_all("orders", [b"x"] * 3) == 3
            assert producer.send_many("orders", []) == []
            with pytest.raises(ArgumentTypeError):
                producer.send_many("orders", iter([b"x"]))
    several = traces.named("send orders")
    assert [span.attributes[COUNT] for span in several] == [3, 3]
    assert traces.one("send").attributes[COUNT] == 2
    records = cluster.records("orders", 0)
    assert [record.value for record in records] == [b"a", b"b", b"c", b"d", *[b"x"] * 3]
    assert {carried(record) for record in records[:3]} == {ids(several[0])}
    assert {carried(record) for record in records[4:]} == {ids(several[1])}
    assert records[1].key == b"k"
    assert records[2].headers[0] == ("h", b"v")


async def test_all_other_ways_to_send_are_traced(cluster: EmbeddedCluster, traces: Traces) -> None:
    async with writing(cluster) as producer:
        with traces.of(producer), traces.tracer.start_as_current_span("order") as order:
            await producer.send_and_wait("orders", b"a")
            future = await asyncio.to_thread(producer.send_threadsafe, "orders", b"b")
            await asyncio.wrap_future(future)
    spans = traces.named("send orders")
    assert len(spans) == 2
    assert {span.parent.span_id for span in spans} == {order.get_span_context().span_id}


async def test_failures_of_sends_are_recorded(cluster: EmbeddedCluster, traces: Traces) -> None:
    def serialize(value: str) -> bytes:
        raise ValueError(f"secret {value}")

    async with writing(cluster, value_serializer=serialize) as producer:
        with traces.of(producer), pytest.raises(SerializationError):
            producer.send("orders", "value")
    async with writing(cluster) as producer:
        with traces.of(producer), cluster.fail(ApiKey.PRODUCE, InvalidRecordError):
            with pytest.raises(InvalidRecordError):
                await producer.send("orders", b"x")
            deliveries = producer.send_many("orders", [b"y", b"z"])
            await producer.gather(deliveries, return_exceptions=True)
            with pytest.raises(KafkaError):
                producer.send(7, b"x")
            with pytest.raises(KafkaError):
                producer.send("orders", b"x", headers=5)
            with pytest.raises(KafkaError):
                producer.send("orders", b"x", headers=[("traceparent", b"", b"")])  # type: ignore[list-item]
    shown = [span.attributes["error.type"] for span in traces.spans]
    assert shown[1:3] == ["INVALID_RECORD", "INVALID_RECORD"]
    assert shown[0] == "aiokclient.errors.SerializationError"
    assert len(shown) == 6
    for span in traces.spans:
        assert span.status.status_code is StatusCode.ERROR
        (event,) = span.events
        assert event.name == "exception"
        assert "secret" not in span.to_json()


async def test_failure_that_was_traced_is_still_unretrieved(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    producer = await writing(cluster)
    with traces.of(producer), cluster.fail(ApiKey.PRODUCE, InvalidRecordError):
        producer.send("orders", b"x")
        await producer.flush()
    with pytest.raises(ExceptionGroup, match="1 failed delivery"):
        await producer.__aexit__(None, None, None)


async def test_context_of_the_application_in_the_headers_is_kept(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = [("traceparent", own.encode()), ("other", None)]
    async with writing(cluster) as producer:
        with traces.of(producer):
            await producer.send("orders", b"x", headers=headers)
            await producer.gather(
                producer.send_many("orders", [ProducerRecord("orders", b"y", headers=headers)])
            )
    expected = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
    for record in cluster.records("orders", 0):
        assert list(record.headers) == headers
    for span in traces.named("send orders"):
        assert links(span) == [expected]
        assert ids(span) != expected


# -- consumers


async def test_iteration_makes_the_span_of_each_record_current(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    sends = await sent(cluster, traces, 3)
    inside: list[int] = []
    started: list[asyncio.Task[int]] = []

    async def within() -> int:
        await asyncio.sleep(0)
        return current()

    async with reading(cluster, client_id="kitchen") as consumer:
        with traces.of(consumer):
            async for _ in consumer.until_end():
                await asyncio.sleep(0)
                inside.append(current())
                started.append(asyncio.create_task(within()))
            assert current() == 0
    spans = traces.named("process orders")
    assert [span.context.span_id for span in spans] == inside
    assert [await task for task in started] == inside
    assert [parent(span) for span in spans] == [ids(span) for span in sends]
    assert [links(span) for span in spans] == [[ids(span)] for span in sends]
    assert spans[2].kind is SpanKind.CONSUMER
    found = dict(spans[2].attributes)
    assert found.pop("server.port")
    assert found == {
        "messaging.system": "kafka",
        "messaging.client.id": "kitchen",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 2,
        "server.address": "127.0.0.1",
    }


async def test_process_is_a_child_of_the_current_span_if_there_is_one(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    (send,) = await sent(cluster, traces, 1)
    async with reading(cluster) as consumer:
        with traces.of(consumer), traces.tracer.start_as_current_span("job") as job:
            async for _ in consumer.until_end():
                assert current() != job.get_span_context().span_id
            assert current() == job.get_span_context().span_id
    span = traces.one("process orders")
    assert span.parent.span_id == job.get_span_context().span_id
    assert links(span) == [ids(send)]


async def test_a_list_has_a_poll_with_links_and_a_process_below_it(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    sends = await sent(cluster, traces, 2)
    async with writing(cluster) as producer:
        with traces.of(producer):
            await producer.gather(producer.send_many("orders", [b"x"] * 5))
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            async for records in consumer.batches(until_end=True):
                assert len(records) == 7
                inside = current()
            assert current() == 0
    poll, process = traces.one("poll orders"), traces.one("process orders")
    assert inside == process.context.span_id
    assert (poll.kind, process.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    assert poll.attributes["messaging.operation.type"] == "receive"
    assert parent(process) == ids(poll)
    many = traces.named("send orders")[2]
    for span in (poll, process):
        assert span.attributes[COUNT] == 7
        assert links(span) == [ids(each) for each in (*sends, many)]
        assert span.links[2].attributes[COUNT] == 5
    times = [poll.start_time, poll.end_time, process.start_time]
    assert None not in times
    assert times == sorted(times)


async def test_tracked_records_are_processed_until_done(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    sends = await sent(cluster, traces, 3)
    found: list[tuple[Any, int]] = []
    async with reading(cluster, group_id="g") as consumer:
        with traces.of(consumer):
            async for record in consumer.tracked():
                found.append((record, current()))
                if len(found) == 3:
                    break
            assert current() == 0
            assert traces.named("process orders") == []
            for record, _ in reversed(found[1:]):
                consumer.done(record)
            ended = traces.named("process orders")
            assert [span.context.span_id for span in ended] == [found[2][1], found[1][1]]
            assert [parent(span) for span in ended] == [ids(sends[2]), ids(sends[1])]
    # `close` has ended the span that the application had not ended.
    assert traces.named("process orders")[2].context.span_id == found[0][1]
    assert traces.named("process orders")[2].attributes["messaging.consumer.group.name"] == "g"


async def test_poll_and_get_have_a_span_and_leave_no_context(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    sends = await sent(cluster, traces, 2)
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            await consumer.get(timeout=30)
            await consumer.poll(timeout=30)
            assert await consumer.poll(timeout=0) == []
            assert current() == 0
    one, many = traces.named("poll orders")
    assert links(one) == [ids(sends[0])]
    assert one.attributes["messaging.kafka.offset"] == 0
    assert COUNT not in dict(one.attributes or {})
    assert many.attributes[COUNT] == 1


async def test_tables_are_traced(cluster: EmbeddedCluster, traces: Traces) -> None:
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    await sent(cluster, traces, 2)
    async with reading(cluster) as consumer:
        with traces.of(consumer):
            async for table in consumer.arrow_batches():
                assert table.num_rows == 2
                assert current() != 0
                break
            assert current() == 0
    poll, process = traces.one("poll orders"), traces.one("process orders")
    assert parent(process) == ids(poll)
    assert process.attributes[COUNT] == 2
    sends = [ids(span) for span in traces.named("send orders")]
    assert links(poll) == links(process) == sends


async def test_failed_request_is_recorded(cluster: EmbeddedCluster, traces: Traces) -> None:
    await sent(cluster, traces, 1)

    def deserialize(data: bytes) -> str:
        raise ValueError(f"secret {data!r}")

    async with reading(cluster, value_deserializer=deserialize) as consumer:
        with traces.of(consumer):
            with pytest.raises(KafkaError):
                await consumer.poll(timeout=30)
            assert current() == 0
    span = traces.one("poll")
    assert span.status.status_code is StatusCode.ERROR
    assert "secret" not in span.to_json()


# -- commits


async def test_commits_have_spans(cluster: EmbeddedCluster, traces: Traces) -> None:
    await sent(cluster, traces, 2)
    async with reading(cluster, group_id="g", enable_auto_commit=False) as consumer:
        with traces.of(consumer):
            async for record in consumer:
                inside = current()
                await consumer.commit(record)
                assert current() == inside
                break
            wrong = {TopicPartition("bills", 0): 1}
            with cluster.fail(ApiKey.OFFSET_COMMIT, InvalidRecordError), pytest.raises(KafkaError):
                await consumer.commit(wrong)
    first, second = traces.named("commit orders")
    assert first.kind is SpanKind.CLIENT
    assert first.parent.span_id == inside
    assert first.attributes["messaging.operation.type"] == "settle"
    assert first.attributes["messaging.consumer.group.name"] == "g"
    assert second.attributes["error.type"] == "INVALID_RECORD"


async def test_automatic_commit_has_a_span_without_a_parent(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    await sent(cluster, traces, 1)
    consumer = reading(cluster, group_id="g", enable_auto_commit=True)
    with traces.of(consumer), traces.tracer.start_as_current_span("service"):
        async with consumer:
            assert await consumer.get(timeout=30)
            consumer.mark_processed()
    span = traces.one("commit orders")
    assert span.parent is None


# -- transform


async def test_transform_joins_the_traces(cluster: EmbeddedCluster, traces: Traces) -> None:
    sends = await sent(cluster, traces, 2)
    options = {"group_id": "g", "enable_auto_commit": False}
    async with (
        reading(cluster, **options) as consumer,
        writing(cluster, transactional_id="t") as producer,
    ):
        with traces.of(consumer), traces.of(producer):
            async with transform(consumer, producer) as stream:
                async for batch in stream:
                    inside = current()
                    for record in batch:
                        batch.send("bills", record.value, headers=record.headers)
                    consumer.stop()
                assert current() == 0
    process = traces.one("process orders")
    assert process.context.span_id == inside
    assert links(process) == [ids(span) for span in sends]
    bills = traces.named("send bills")
    assert [parent(span) for span in bills] == [ids(process)] * 2
    assert parent(traces.one("commit")) == ids(process)
    # The new records carry the context of their own spans, not that of the processed records.
    found = [record for record in cluster.records("bills", 0) if record.value in (b"0", b"1")]
    assert [carried(record) for record in found] == [ids(span) for span in bills]
    async with reading(cluster, "bills", isolation_level="read_committed") as consumer:
        with traces.of(consumer):
            async for _ in consumer.until_end():
                pass
    assert [parent(span) for span in traces.named("process bills")] == [ids(each) for each in bills]


@pytest.mark.parametrize("how", ["break", "raise"])
async def test_leaving_transform_leaves_no_context(
    cluster: EmbeddedCluster, traces: Traces, how: str
) -> None:
    await sent(cluster, traces, 1)
    options = {"group_id": "g", "enable_auto_commit": False}
    async with (
        reading(cluster, **options) as consumer,
        writing(cluster, transactional_id="t") as producer,
    ):
        with traces.of(consumer), traces.of(producer):
            try:
                async with transform(consumer, producer) as stream:
                    try:
                        async for _ in stream:
                            if how == "break":
                                break
                            raise LookupError("wrong")
                    finally:
                        assert current() == 0
            except LookupError:
                pass
            assert current() == 0
    failed = traces.one("process orders").status.status_code is StatusCode.ERROR
    assert failed is (how == "raise")


async def test_headers_carry_the_context_between_clients(
    cluster_servers: Any, traces: Traces
) -> None:
    topic = await cluster_servers.new_topic(1)
    servers = cluster_servers.bootstrap
    async with Producer(bootstrap_servers=servers) as producer:
        with traces.of(producer), traces.tracer.start_as_current_span("order") as order:
            await producer.send(topic, b"x")
    async with Consumer(
        topic, bootstrap_servers=servers, group_id=f"g-{topic}", auto_offset_reset="earliest"
    ) as consumer:
        with traces.of(consumer):
            async for record in consumer:
                await consumer.commit(record)
                break
    send, commit = traces.one(f"send {topic}"), traces.one(f"commit {topic}")
    process = traces.one(f"process {topic}")
    trace_id = order.get_span_context().trace_id
    assert {ids(span)[0] for span in (send, process, commit)} == {trace_id}
    assert parent(process) == ids(send)
    assert parent(commit) == ids(process)
    assert carried(record) == ids(send)


# -- the instrumentation


async def test_object_can_be_instrumented_before_its_start_and_again(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    producer = writing(cluster)
    kind = type(producer)
    done = traces.of(producer)
    with pytest.raises(IllegalStateError, match="instrumented already"):
        traces.of(producer)
    assert isinstance(producer, Producer)
    assert repr(producer).startswith("<Producer")
    async with producer:
        await producer.send("orders", b"x")
        done.uninstrument()
        done.uninstrument()
        assert type(producer) is kind
        await producer.send("orders", b"x")
        with traces.of(producer):
            await producer.send("orders", b"x")
    assert len(traces.named("send orders")) == 2
    with pytest.raises(ArgumentTypeError):
        instrument(object())
    with pytest.raises(ClosedError):
        producer.send("orders", b"x")


async def test_uninstrument_in_a_loop_ends_its_span(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    await sent(cluster, traces, 3)
    async with reading(cluster) as consumer:
        done = traces.of(consumer)
        async for record in consumer.until_end():
            assert (current() == 0) is (record.offset > 0)
            done.uninstrument()
        assert current() == 0
    assert len(traces.named("process orders")) == 1


async def test_objects_without_instrumentation_send_the_same_bytes(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async def produced() -> list[bytes]:
        cluster.reset()
        async with writing(cluster, client_id="same", enable_idempotence=False) as producer:
            await producer.send("orders", b"x", timestamp=1)
            await producer.send("orders", b"y", key=b"k", timestamp=1)
            records = [ProducerRecord("orders", b"z", timestamp=1)] * 2
            await producer.gather(producer.send_many("orders", records))
        requests = [each for each in cluster.requests if each.api is ApiKey.PRODUCE]
        return [bytes(each._frame) for each in requests]

    before = await produced()
    async with writing(cluster) as other:
        with traces.of(other):
            assert await produced() == before
    assert len(before) == 3
    assert type(writing(cluster)) is Producer


async def test_without_an_sdk_no_header_is_added(cluster: EmbeddedCluster) -> None:
    async with writing(cluster) as producer:
        with instrument(producer):
            await producer.send("orders", b"x")
    async with reading(cluster) as consumer:
        with instrument(consumer):
            async for record in consumer.until_end():
                assert list(record.headers) == []
