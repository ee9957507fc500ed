"""The metrics of workers, and the spans of their runs."""

from __future__ import annotations

import asyncio
from typing import Any

from opentelemetry.trace import StatusCode
from traces import Traces, current, ids, links, parent

from aiokclient import Client, Consumer, Producer
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker import Batch, Exponential, Reject, Retry, Worker

ONCE_MORE = Retry(2, backoff=Exponential(0.001, max=0.001))


def make_consumer(client: Client, **options: Any) -> Consumer[Any, Any]:
    options = {"group_id": "billing", "auto_offset_reset": "earliest"} | options
    return Consumer("orders", client=client, **options)


async def test_metrics_count_runs_failures_retries_and_dead_letters() -> None:
    async with EmbeddedCluster(topics={"orders": 1, "dead": 1}) as cluster:
        cluster.produce("orders", [b"good", b"poison", b"rejected", b"last"])
        seen: dict[str, Any] = {}

        async def bill(record: Any) -> None:
            if record.value == b"poison":
                raise LookupError("no such customer")
            if record.value == b"rejected":
                raise Reject("not ours")
            if record.value == b"last":
                seen.update({f"{v.name} {v.labels.get('partition', '')}".strip(): v.value
                             for v in client.metric_values("worker.")})  # fmt: skip
                worker.stop()

        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            consumer = make_consumer(client)
            worker = Worker(consumer, bill, retry=ONCE_MORE, dead_letter="dead", name="bills")
            await worker.run()
            after = client.metrics()
    handler = (
        "{handler=test_metrics_count_runs_failures_retries_and_dead_letters.bill,worker=bills}"
    )
    assert after[f"worker.runs{handler}"] == 5
    assert after[f"worker.retries{handler}"] == 1
    assert after[f"worker.dead.letters{handler}"] == 2
    assert after[f"worker.failures{{error=LookupError,{handler[1:]}"] == 2
    assert after[f"worker.failures{{error=Reject,{handler[1:]}"] == 1
    assert after[f"worker.handler.seconds{handler}"]["count"] == 5
    assert after[f"worker.lane.seconds{handler}"]["count"] == 5
    # The gauges are those of a running worker.
    assert seen["worker.lag 0"] == 1
    assert seen["worker.ready"] == 1
    assert seen["worker.lanes.busy"] == 1
    assert seen["worker.retries.waiting"] == 0
    assert seen["worker.oldest.seconds"] >= 0
    assert not [name for name in after if name.startswith("worker.lag")]


async def test_each_run_has_a_span_with_the_context_of_its_record() -> None:
    traces = Traces()
    seen = []

    async def bill(record: Any) -> None:
        seen.append(current())
        if len(seen) == 1:
            raise LookupError("no such customer")
        worker.stop()

    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
        Producer(client=client) as producer,
        make_consumer(client) as consumer,
    ):
        worker = Worker(consumer, bill, retry=ONCE_MORE)
        with traces.of(producer), traces.of(consumer):
            await producer.send("orders", b"tea")
            await worker.run()
    sent = traces.one("send orders")
    failed, repeated = traces.named("process orders")
    assert seen == [ids(failed)[1], ids(repeated)[1]]
    for number, span in enumerate((failed, repeated), 1):
        assert parent(span) == ids(sent)
        assert links(span) == [ids(sent)]
        assert span.attributes["aiokclient.attempt"] == number
        assert span.attributes["messaging.consumer.group.name"] == "billing"
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes["error.type"] == "LookupError"
    assert repeated.status.status_code is StatusCode.UNSET


async def test_a_batch_has_one_span_with_links_to_its_records() -> None:
    traces = Traces()

    async def bill(records: list[Any]) -> None:
        await asyncio.sleep(0)
        worker.stop()

    async with (
        EmbeddedCluster(topics={"orders": 1}) as cluster,
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
        Producer(client=client) as producer,
        make_consumer(client) as consumer,
    ):
        with traces.of(producer):
            for value in (b"tea", b"coffee"):
                await producer.send("orders", value)
        worker = Worker(consumer, bill, batch=Batch(2, max_wait=30))
        with traces.of(consumer):
            await worker.run()
    span = traces.one("process orders")
    assert span.attributes["messaging.batch.message_count"] == 2
    assert links(span) == [ids(each) for each in traces.named("send orders")]
    assert span.parent is None
