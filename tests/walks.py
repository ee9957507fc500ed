"""Trace five ways through the library, and count the functions and modules on them.

    AIOKCLIENT_PURE=1 python tests/walks.py [-v]

Each way is walked three times, in pure Python, by a quiet client. The smallest counts are printed:
functions, modules, and changes of module. With `-v`, the functions are listed in their order; with
`--json`, only the counts are printed. The brokers run in another process. `tests/test_house.py` has
the limits.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, Self

import aiokclient
from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import RecordTooLargeError

LIBRARY = str(Path(aiokclient.__file__).parent) + "/"
TOOL = 3
WALKS = 3
QUIET: dict[str, Any] = {"metadata_max_age_ms": 10_000_000, "enable_metrics_push": False}
BROKERS = """
import sys
from aiokclient.testing import EmbeddedCluster
with EmbeddedCluster(brokers=1, topics={"sent": 1, "read": 1}) as cluster:
    cluster.create_topic("small", configs={"max.message.bytes": "500"})
    print(cluster.bootstrap_servers, flush=True)
    for line in sys.stdin:
        cluster.produce("read", [b"x"])
        print("produced", flush=True)
"""


class Counts(NamedTuple):
    """The size of a way."""

    functions: int
    modules: int
    changes: int
    """The number of calls and resumptions whose function is in another module than the last one."""


class Walk:
    """A recording of the functions of the library that start or continue, in their order."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def __enter__(self) -> Self:
        events = sys.monitoring.events
        sys.monitoring.use_tool_id(TOOL, "walks")
        sys.monitoring.register_callback(TOOL, events.PY_START, self._on_start)
        sys.monitoring.set_events(TOOL, events.PY_START)
        return self

    def __exit__(self, *error: object) -> None:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.free_tool_id(TOOL)
        sys.monitoring.restart_events()

    def _on_start(self, code: CodeType, offset: int) -> Any:
        if not code.co_filename.startswith(LIBRARY):
            return sys.monitoring.DISABLE
        if not code.co_name.startswith("<"):
            self.calls.append(code)
        return None

    def keep(self, first: str, last: str | None = None) -> None:
        """Keep the part of the way from one function to another one, or nothing without them."""
        names = [code.co_qualname for code in self.calls]
        if first not in names or (last is not None and last not in names):
            self.calls = []
            return
        end = len(names) if last is None else len(names) - names[::-1].index(last)
        self.calls = self.calls[names.index(first) : end]

    @property
    def counts(self) -> Counts:
        files = [code.co_filename for code in self.calls]
        changes = sum(a != b for a, b in pairwise(files))
        return Counts(len({*self.calls}), len({*files}), changes)

    def lines(self) -> list[str]:
        functions = dict.fromkeys(self.calls)
        return [f"{c.co_filename.removeprefix(LIBRARY)} {c.co_qualname}" for c in functions]


async def smallest(walk_once: Callable[[], Awaitable[Walk]]) -> Walk:
    """Return the shortest of several walks on one way."""
    walks: list[Walk] = []
    while len(walks) < WALKS:
        walk = await walk_once()
        await asyncio.sleep(0.1)  # What the walk has left in the background is not on the next one.
        if walk.calls:
            walks.append(walk)
    return min(walks, key=lambda walk: walk.counts)


class Brokers:
    """An embedded cluster in another process."""

    def __init__(self, process: asyncio.subprocess.Process, servers: str) -> None:
        self._process = process
        self.servers = servers

    async def produce(self) -> None:
        """Append a record to the topic "read"."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        await self._process.stdout.readline()


@asynccontextmanager
async def run_brokers() -> AsyncIterator[Brokers]:
    pipe = subprocess.PIPE
    command = (sys.executable, "-c", BROKERS)
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    try:
        yield Brokers(process, (await process.stdout.readline()).decode().strip())
    finally:
        await process.communicate()


async def walk_sends(servers: str) -> Walk:
    async with Producer(bootstrap_servers=servers, **QUIET) as producer:

        async def send() -> Walk:
            with Walk() as walk:
                await producer.send("sent", b"x")
            return walk

        await send()
        return await smallest(send)


async def walk_errors(servers: str) -> Walk:
    """Return the way of a send whose record a broker refuses, until its error is raised."""
    async with Producer(bootstrap_servers=servers, **QUIET) as producer:
        await producer.send("small", b"x")

        async def fail() -> Walk:
            with Walk() as walk:
                try:
                    await producer.send("small", bytes(1000))
                except RecordTooLargeError:
                    pass
            return walk

        await fail()
        return await smallest(fail)


def fetched_bytes(consumer: Consumer[Any, Any]) -> float:
    values = consumer.metric_values("consumer.fetch.bytes")
    return sum(each.value for each in values)  # One for each broker.


async def walk_frames(brokers: Brokers) -> tuple[Walk, Walk]:
    """Return the ways of a frame that arrives, and of a record that was fetched before."""
    consumer = Consumer[Any, Any](
        bootstrap_servers=brokers.servers, auto_offset_reset="earliest", **QUIET
    )
    consumer.assign([TopicPartition("read", 0)])
    async with consumer:
        iterator = aiter(consumer)
        first = asyncio.ensure_future(anext(iterator))
        await brokers.produce()
        await first

        async def receive() -> Walk:
            reading = asyncio.ensure_future(anext(iterator))
            await asyncio.sleep(0)  # The reader waits. Its fetch was sent before.
            with Walk() as walk:
                await brokers.produce()
                await reading
            walk.keep("ConnectionState.get_buffer", "RecordCursor.expose")
            return walk

        async def take() -> Walk:
            before = fetched_bytes(consumer)
            await brokers.produce()
            while fetched_bytes(consumer) == before:  # noqa: ASYNC110 -- no event tells it
                await asyncio.sleep(0.001)
            with Walk() as walk:
                await anext(iterator)
            return walk

        return await smallest(receive), await smallest(take)


async def walk_commits(servers: str) -> Walk:
    async with Producer(bootstrap_servers=servers, transactional_id="walk", **QUIET) as producer:

        async def commit() -> Walk:
            await producer.begin_transaction()
            await producer.send("sent", b"x")
            with Walk() as walk:
                await producer.commit_transaction()
            return walk

        await commit()
        return await smallest(commit)


async def walk_all() -> dict[str, Walk]:
    async with run_brokers() as brokers:
        frame, record = await walk_frames(brokers)
        return {
            "a send and its await": await walk_sends(brokers.servers),
            "a fetched frame until it is delivered": frame,
            "one buffered record": record,
            "an error code until the exception": await walk_errors(brokers.servers),
            "a commit in a transaction": await walk_commits(brokers.servers),
        }


if __name__ == "__main__":
    walks = asyncio.run(walk_all())
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({name: walk.counts for name, walk in walks.items()}))
    for name, walk in () if "--json" in sys.argv else walks.items():
        sys.stdout.write(f"{name:40}{walk.counts[0]:5}{walk.counts[1]:5}{walk.counts[2]:5}\n")
        for line in walk.lines() if "-v" in sys.argv else ():
            sys.stdout.write(f"    {line}\n")
