"""Consumers of Java and of this library in a group, connected through a `MetadataProxy`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from churn import java as java_member
from metadata_proxy import MetadataProxy, ProxiedConnection

from aiokclient import Consumer, Producer
from aiokclient.protocol import ApiKey

PATIENCE_S = 120.0


class JavaReader:
    """Java's consumer in a process, and the number of records that it has read."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        options = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "metadata.max.age.ms": 300,
            "heartbeat.interval.ms": 200,
        }
        self._process, self._socket = java_member.start({"topic": topic, "options": options})
        self.count = 0
        self._more = asyncio.Event()

    async def run(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._socket)
        try:
            async for line in reader:
                what = json.loads(line)[1]
                self.count += what == "done"
                self._more.set()
        except ConnectionResetError:
            pass  # The program has ended without reading its command.
        finally:
            self._process.kill()  # The program still runs only if the test has failed.
            self._process.wait()
            self._writer.close()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.count < count:
                self._more.clear()
                await self._more.wait()

    def stop(self) -> None:
        """Let the program close its consumer, and end."""
        self._writer.write(b"\n")


class OurReader:
    """A consumer of this library, with the same interface as `JavaReader`."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.consumer = Consumer[Any, Any](
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            metadata_max_age_ms=300,
            heartbeat_interval_ms=200,
            listener=self,
        )
        self.count = self.assignments = 0
        self._more = asyncio.Event()

    def on_assigned(self, tps: Any) -> None:
        self.assignments += 1

    async def run(self) -> None:
        async with self.consumer:
            self.events = self.consumer.events()
            async for _ in self.consumer:
                self.count += 1
                self._more.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.count < count:
                self._more.clear()
                await self._more.wait()

    def stop(self) -> None:
        self.consumer.stop()


@asynccontextmanager
async def reading(reader: Any) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(reader.run())
        yield
        reader.stop()


async def write(kafka: Any, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        await producer.gather([producer.send(topic, b"%d" % number) for number in range(count)])


def of_coordinator(proxy: MetadataProxy) -> list[ProxiedConnection]:
    """Return the open connections on which a member sends its heartbeats."""
    return [each for each in proxy.open() if each.requests[ApiKey.HEARTBEAT]]


async def rebootstrap(proxy: MetadataProxy, kafka: Any, topic: str, reader: Any) -> Any:
    """Let a reader rebootstrap, and read on. Return its connections before and after."""
    await write(kafka, topic, 10)
    await reader.until(10)
    await proxy.until(lambda: of_coordinator(proxy))
    # Otherwise, Java would reuse its idle bootstrap connection, and the rebootstrap would be
    # invisible.
    proxy.close_bootstraps()
    await proxy.until(lambda: not any(each.is_bootstrap for each in proxy.open()))
    before = proxy.open()
    coordinator = of_coordinator(proxy)
    beats = sum(each.requests[ApiKey.HEARTBEAT] for each in coordinator)
    known = len(proxy.connections)
    proxy.require_rebootstrap()
    await proxy.until(lambda: any(each.is_bootstrap for each in proxy.connections[known:]))
    assert proxy.refused == 1
    await write(kafka, topic, 10)
    await reader.until(20)
    await proxy.until(
        lambda: sum(c.requests[ApiKey.HEARTBEAT] for c in proxy.connections) > beats + 3
    )
    assert reader.count == 20
    return before, coordinator
