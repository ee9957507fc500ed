"""The spans of `send_arrow`, and the context in the headers of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from opentelemetry.trace import StatusCode
from traces import Traces, ids, links

from aiokclient import KafkaError, Producer
from aiokclient.testing import EmbeddedCluster

COUNT = "messaging.batch.message_count"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def writing(cluster: EmbeddedCluster) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap_servers)


def carried(record: Any) -> tuple[int, int]:
    """Return the ids in the header `traceparent` of a record."""
    (text,) = [value for name, value in record.headers if name == "traceparent"]
    _, trace_id, span_id, _ = text.decode().split("-")
    return int(trace_id, 16), int(span_id, 16)


async def test_send_arrow_has_one_span_whose_context_all_rows_carry(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    headers = [[{"key": "h", "value": b"v"}], None, []]
    plain = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
    given = pa.RecordBatch.from_pydict(
        {
            "value": [b"c", b"d", b"e"],
            "topic": ["orders", "orders", "bills"],
            "headers": pa.array(headers, HEADERS),
        }
    )
    async with writing(cluster) as producer:
        with traces.of(producer):
            await producer.gather(producer.send_arrow("orders", plain))
            await producer.gather(producer.send_arrow(None, given))
            assert producer.send_arrow("orders", plain.slice(0, 0)) == []
    one, several = traces.one("send orders"), traces.one("send")
    assert (one.attributes[COUNT], several.attributes[COUNT]) == (2, 3)
    records = [*cluster.records("orders", 0), *cluster.records("bills", 0)]
    assert [record.value for record in records] == [b"a", b"b", b"c", b"d", b"e"]
    assert [carried(record) for record in records] == [ids(one)] * 2 + [ids(several)] * 3
    assert records[2].headers[0] == ("h", b"v")


async def test_send_arrow_keeps_the_context_of_the_application_and_links_it(
    cluster: EmbeddedCluster, traces: Traces
) -> None:
    async with writing(cluster) as producer:
        with traces.of(producer):
            await producer.send("orders", b"0")
    send = traces.one("send orders")
    (first,) = cluster.records("orders", 0)
    pairs = [{"key": name, "value": value} for name, value in first.headers]
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b"], "headers": pa.array([pairs, None], HEADERS)}
    )
    async with writing(cluster) as producer:
        with traces.of(producer):
            await producer.gather(producer.send_arrow("orders", batch))
    span = traces.named("send orders")[-1]
    assert links(span) == [ids(send)]
    _, kept, new = cluster.records("orders", 0)
    assert (carried(kept), carried(new)) == (ids(send), ids(span))


@pytest.mark.parametrize(
    "batch",
    [
        pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, names=["value", "value"]),
        pa.RecordBatch.from_pydict({"value": [b"a"], "headers": [5]}),
        pa.RecordBatch.from_pydict({"value": [b"a"], "headers": [[{"key": None, "value": b""}]]}),
        pa.table({"value": [b"a"]}),
    ],
    ids=["column twice", "headers of integers", "header without a name", "table"],
)
async def test_batch_that_send_arrow_refuses_is_refused_alike_and_recorded(
    cluster: EmbeddedCluster, traces: Traces, batch: Any
) -> None:
    async with writing(cluster) as producer:
        with pytest.raises(KafkaError) as expected:
            producer.send_arrow("orders", batch)
        with traces.of(producer), pytest.raises(KafkaError) as caught:
            producer.send_arrow("orders", batch)
    assert str(caught.value) == str(expected.value)
    assert traces.one("send orders").status.status_code is StatusCode.ERROR
