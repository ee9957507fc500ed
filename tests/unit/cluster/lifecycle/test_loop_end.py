"""Tests that nothing hangs and no socket stays open when the event loop ends before its clients."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from kinds import KINDS, make

from aiokclient import Client, State
from aiokclient.errors import ClosedError
from aiokclient.testing import EmbeddedCluster

LOOPS = ["asyncio", "uvloop"]


def factory_of(loop: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    return None if loop == "asyncio" else pytest.importorskip("uvloop").new_event_loop


FORGOTTEN = """
import asyncio, gc, os, sys, warnings
from aiokclient import Client, Consumer, Producer
from aiokclient.testing import EmbeddedCluster

factory = None
if sys.argv[1] == "uvloop":
    import uvloop
    factory = uvloop.new_event_loop

async def main(servers):
    producer = await Producer(bootstrap_servers=servers)
    await producer.send("t", b"v")
    member = await Consumer("t", group_id="g", bootstrap_servers=servers)
    client = await Client(bootstrap_servers=servers)
    return producer, member, client, await Consumer("t", client=client)

def sockets():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and "socket" in os.readlink(link) for link in links)

gc.disable()
with EmbeddedCluster(topics={"t": 1}) as cluster:
    before = sockets()
    warnings.simplefilter("error")
    with asyncio.Runner(loop_factory=factory) as runner:
        forgotten = runner.run(main(cluster.bootstrap_servers))
    cluster.wait_for(lambda: sockets() <= before, 20)
    print([one.state.name for one in forgotten])
    warnings.simplefilter("ignore")
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loop_ends_and_sockets_are_closed_when_clients_are_left_open(loop: str) -> None:
    """An open transport would make uvloop wait forever. A ResourceWarning is an error here."""
    factory_of(loop)
    command = [sys.executable, "-c", FORGOTTEN, loop]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == (f"{['FAILED'] * 4}\n", 0), done.stderr


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_the_end_of_the_loop_cancels_closes_its_client(
    kind: str, shared: bool, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[Any] = []
    tasks: list[asyncio.Task[None]] = []

    async def use(options: dict[str, Any], opened: asyncio.Event) -> None:
        async with make(kind, **options) as one:
            closed.append(one)
            opened.set()
            await asyncio.Event().wait()

    async def use_shared(options: dict[str, Any], opened: asyncio.Event) -> None:
        async with Client(**options) as client:
            await use({"client": client}, opened)

    async def main(servers: str) -> None:
        opened = asyncio.Event()
        using = use_shared if shared else use
        tasks.append(asyncio.create_task(using({"bootstrap_servers": servers}, opened)))
        await opened.wait()

    with (
        EmbeddedCluster(topics={"t": 1}) as cluster,
        asyncio.Runner(loop_factory=factory_of(loop)) as runner,
    ):
        runner.run(main(cluster.bootstrap_servers))
    (one,) = closed
    assert one.state is State.CLOSED
    events = [record.__dict__.get("event") for record in caplog.records]
    assert "task_died" not in events


def test_calls_after_the_loop_ended_raise() -> None:
    async def main(servers: str) -> Client:
        return await Client(bootstrap_servers=servers)

    with EmbeddedCluster() as cluster:
        held = [asyncio.run(main(cluster.bootstrap_servers))]
    with pytest.raises(ClosedError, match="event loop has ended"):
        held[0].metrics()

    def drop() -> None:
        held.clear()
        gc.collect()  # The traceback of the error may be part of a reference cycle.

    with pytest.warns(ResourceWarning, match="was dropped without close"):
        drop()
