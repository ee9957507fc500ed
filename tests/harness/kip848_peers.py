"""Consumers of librdkafka and of this library in one group under KIP-848."""

import asyncio
import contextlib
import threading
import time

import pytest

from aiokclient import Consumer

confluent = pytest.importorskip("confluent_kafka")

PATIENCE_S = 60.0


class Reader:
    """A consumer of librdkafka, with its assignment and the records that it has read."""

    def __init__(self, servers, topic, *, group="g", protocol="consumer", **options):
        settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "group.protocol": protocol,
            "reconnect.backoff.ms": 10,
            "log_level": 0,
        }
        if protocol == "classic":
            settings |= {"heartbeat.interval.ms": 50, "session.timeout.ms": 30_000}
            settings |= {"partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = confluent.Consumer(
            settings | {key.replace("_", "."): value for key, value in options.items()}
        )
        self.has, self.values, self.errors = set(), [], []
        self.consumer.subscribe(
            [topic],
            on_assign=self.assigned,
            on_revoke=self.revoked,
            on_lost=self.revoked,
        )

    def assigned(self, consumer, partitions):
        self.has |= {(each.topic, each.partition) for each in partitions}

    def revoked(self, consumer, partitions):
        self.has -= {(each.topic, each.partition) for each in partitions}

    def poll(self):
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.values.append(message.value())
        elif message is not None and not message.error().retriable():
            self.errors.append(message.error())

    def close(self):
        self.consumer.close()


class Ours:
    """A consumer of this library in a thread, with a listener that records its assignment."""

    def __init__(self, servers, topic, *, group="g", **options):
        self.has, self.values, self.failure = set(), [], None
        self._consumer = None
        settings = {"group_protocol": "consumer", "auto_offset_reset": "earliest", **options}
        self._make = lambda: Consumer(
            topic,
            group_id=group,
            bootstrap_servers=servers,
            listener=self,
            **settings,
        )
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()

    async def _main(self):
        try:
            async with self._make() as self._consumer:
                async for record in self._consumer:
                    self.values.append(record.value)
        except Exception as error:
            self.failure = error

    def on_assigned(self, partitions):
        self.has = self.has | {tuple(each) for each in partitions}

    def on_revoked(self, partitions):
        self.has = self.has - {tuple(each) for each in partitions}

    on_lost = on_revoked

    def poll(self):
        pass

    def close(self):
        if self._consumer is not None:
            self._consumer.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def drive(readers, check):
    """Let all consumers read until the check is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, [(each.has, len(each.values)) for each in readers]
        for each in readers:
            each.poll()


def even(readers, count):
    """Return whether all partitions are divided evenly, and none has two owners."""
    parts = [partition for each in readers for partition in each.has]
    sizes = [len(each.has) for each in readers]
    return len(parts) == len(set(parts)) == count and max(sizes) - min(sizes) <= 1


def have(readers, values):
    return {value for each in readers for value in each.values} >= set(values)


@contextlib.contextmanager
def closing(readers):
    try:
        yield readers
    finally:
        for each in readers:
            each.close()
