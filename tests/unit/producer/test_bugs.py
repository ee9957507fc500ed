"""Tests that a bug in a callback of the event loop fails the producer with an error.

Nothing hangs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokclient import Client, Producer, State
from aiokclient.errors import KafkaError, NotEnoughReplicasError, RecordTooLargeError
from aiokclient.producer.batching.accumulator import Accumulator
from aiokclient.producer.batching.queue import PartitionQueue, Topic
from aiokclient.producer.sending.expiry import Expiry
from aiokclient.producer.sending.leaders import Leaders
from aiokclient.producer.sending.responses import Responses
from aiokclient.producer.sending.sender import ProduceConnection, Sender
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster


class BugError(Exception):
    pass


def bug(*_: Any, **__: Any) -> None:
    raise BugError("a bug")


CALLBACKS = [
    (Sender, "send_batches"),
    (Sender, "on_response"),
    (Sender, "_send_request"),
    (ProduceConnection, "_check_silence"),
    (ProduceConnection, "_on_connection_lost"),
    (PartitionQueue, "unblock_sending"),
    (Responses, "_on_builders_made"),
    (Accumulator, "_on_linger_timer"),
    (Accumulator, "_on_compressed"),
    (Accumulator, "complete_batch"),
    (Expiry, "expire_batches"),
    (Leaders, "_learn_topic"),
    (Leaders, "_designate_records"),
    (PartitionQueue, "next_batch"),
    (PartitionQueue, "remove_batch"),
]

COMPILED = (Sender, PartitionQueue, Accumulator)


def break_class(
    owner: type, name: str, begun: asyncio.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put a class in the place of `owner` whose function `name` has a bug once it has begun.

    The functions of a compiled class cannot be replaced.
    """
    right = getattr(owner, name)

    def broken(self: Any, *arguments: Any, **named: Any) -> Any:
        return (bug if begun.is_set() else right)(self, *arguments, **named)

    made = type(owner.__name__, (owner,), {name: broken})

    class WithQueues(Topic):
        def make_queue(self, partition: int | None) -> PartitionQueue:
            queue: PartitionQueue = made(self.status, partition)
            return queue

    if owner is PartitionQueue:
        monkeypatch.setattr("aiokclient.producer.sending.leaders.Topic", WithQueues)
    else:
        monkeypatch.setattr(f"aiokclient.producer.engine.{owner.__name__}", made)


def provoke(cluster: EmbeddedCluster, name: str) -> None:
    """Cause the event after which the event loop calls the function with this name."""
    if name == "unblock_sending":
        cluster.fail(ApiKey.PRODUCE, NotEnoughReplicasError)
    elif name == "_on_builders_made":
        cluster.fail(ApiKey.PRODUCE, RecordTooLargeError, topic="t")
    elif name == "_on_connection_lost":
        cluster.drop(ApiKey.PRODUCE)
    elif name in ("expire_batches", "_check_silence"):
        cluster.pause(1)


async def until_it_breaks(producer: Producer[Any, Any], name: str) -> list[Any]:
    deliveries = [*producer.send_many("t", [bytes(700)] * 200), producer.send("u", b"v")]
    async with asyncio.timeout(30):
        while name == "_on_linger_timer" and not deliveries[-1].done():  # noqa: ASYNC110
            # An await would make the batch leave before its linger time.
            await asyncio.sleep(0.001)
        results = await producer.gather(deliveries, return_exceptions=True)
    return [result for result in results if isinstance(result, KafkaError)]


@pytest.mark.parametrize(("owner", "name"), CALLBACKS)
async def test_a_bug_in_a_callback_fails_the_producer(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    begun = asyncio.Event()
    with EmbeddedCluster(topics=["t", "u"]) as cluster:
        async with Client(bootstrap_servers=cluster.bootstrap_servers) as client:
            bystander = await Producer(client=client)
            if owner in COMPILED:
                break_class(owner, name, begun, monkeypatch)
            producer: Any = await Producer(
                client=client,
                delivery_timeout_ms=5_000 if name == "expire_batches" else 20_000,
                request_timeout_ms=20_000,
                max_block_ms=20_000,
                compression_type="gzip" if name == "_on_compressed" else "none",
            )
            if name not in ("_designate_records", "_learn_topic"):
                await producer.gather([producer.send(topic, b"v") for topic in "tu"])
            while producer._engine.accumulator._linger_timer is not None:  # noqa: ASYNC110
                # A timer that is already set would call the original function.
                await asyncio.sleep(0.001)
            provoke(cluster, name)
            begun.set()
            if owner not in COMPILED:
                monkeypatch.setattr(owner, name, bug)
            errors = await until_it_breaks(producer, name)
            begun.clear()
            monkeypatch.undo()
            assert errors
            assert {type(error.__cause__) for error in errors} == {BugError}
            assert producer.state is State.FAILED
            assert "BugError" in producer.health().reasons[0]
            for call in (lambda: producer.send("t", b"v"), lambda: producer.send_many("t", [b""])):
                with pytest.raises(BugError):
                    call()
            for wait in (producer.drain, producer.flush, lambda: producer.send_all("t", [b"v"])):
                with pytest.raises(BugError):
                    await wait()
            assert "died" in caplog.text
            await producer.__aexit__(None, None, None)  # The program has already seen the error.
            cluster.resume(1)
            cluster.reset()
            assert (await bystander.send("u", b"v")).topic == "u", "other producers keep running"
