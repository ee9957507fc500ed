"""Tests of what the handlers of a worker send."""

import asyncio
import concurrent.futures
import threading
from typing import Any

import pytest

from aiokclient import Consumer, Producer, ProducerRecord
from aiokclient.testing import EmbeddedCluster
from aiokclient.worker.outbox import Outbox


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["both", "the second alone"])
async def test_a_thread_sends_in_order_while_the_producer_of_its_worker_becomes_ready(
    is_cancelled: bool,
) -> None:
    async with (
        EmbeddedCluster(topics={"t": 1, "out": 1}) as cluster,
        Consumer("t", bootstrap_servers=cluster.bootstrap_servers) as consumer,
        Producer(bootstrap_servers=cluster.bootstrap_servers) as producer,
    ):
        outbox = Outbox(consumer, None)
        sends: list[Any] = []

        def send_two() -> None:
            sends.append(outbox.send_record(ProducerRecord("out", b"first")))
            outbox._made = producer  # For a send to another topic, it was made meanwhile.
            sends.append(outbox.send_record(ProducerRecord("out", b"second")))

        thread = threading.Thread(target=send_two)
        thread.start()
        thread.join()  # The loop waits, so that no task has begun when the second is sent.
        first, second = sends
        assert isinstance(first, concurrent.futures.Future)
        if is_cancelled:
            assert first.cancel()
        else:
            await asyncio.wrap_future(first)
        await asyncio.wrap_future(second)
        values = [record.value for record in cluster.records("out")]
        assert values[-1] == b"second"
        assert values[:-1] in ([[], [b"first"]] if is_cancelled else [[b"first"]])
        # No later send waits for a ticket.
        outbox.send_record(ProducerRecord("out", b"third"))
        assert not outbox._waiting
        assert not outbox._turns


async def test_a_send_that_is_cancelled_before_it_begins_holds_back_no_later_one() -> None:
    async with (
        EmbeddedCluster(topics={"t": 1, "out": 1}) as cluster,
        Consumer("t", bootstrap_servers=cluster.bootstrap_servers) as consumer,
    ):
        outbox = Outbox(consumer, None)
        first = outbox.send_record(ProducerRecord("out", b"first"))
        assert isinstance(first, asyncio.Task)
        first.cancel()
        second = outbox.send_record(ProducerRecord("out", b"second"))
        assert isinstance(second, asyncio.Task)
        await second
        assert [record.value for record in cluster.records("out")] == [b"second"]
        assert not outbox._waiting
        assert not outbox._turns
        await outbox.close(5.0)
