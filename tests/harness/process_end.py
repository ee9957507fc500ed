"""A process that ends, or forks, while its clients are open: ``process_end.py SERVERS HOW LOOP``.

It prints lines for the test that runs it. HOW is a key of `WAYS`, and LOOP is asyncio or uvloop.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from aiokclient import Admin, Client, Consumer, Producer, single_writer, work_pool
from aiokclient.testing.proxy import ProxyConnector

TOPIC = "t"
REQUEST_TIMEOUT_MS = 4_000
"""The time for which a parent waits for its former connections. A forked loop of asyncio may leave
nothing to wait for, because both have one epoll.
"""


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def opened(servers: str, **options: Any) -> list[Any]:
    """Open one client of each kind, all of which have something in progress."""
    options |= {"bootstrap_servers": servers, "request_timeout_ms": REQUEST_TIMEOUT_MS}
    quick: dict[str, Any] = {"heartbeat_interval_ms": 100, "metadata_max_age_ms": 300}
    producer = await Producer[Any, Any](**options, linger_ms=0)
    await producer.send(TOPIC, b"first")
    classic = await Consumer[Any, Any](TOPIC, group_id="classic", **quick, **options)
    kip848 = await Consumer[Any, Any](
        TOPIC, group_id="kip848", group_protocol="consumer", metadata_max_age_ms=300, **options
    )
    transactional = await Producer[Any, Any](transactional_id="x", **options)
    await transactional.begin_transaction()
    await transactional.send(TOPIC, b"in a transaction")
    return [producer, classic, kip848, transactional, await Admin(**options)]


async def leave_unfinished(clients: list[Any]) -> list[Any]:
    """Begin calls that are still in progress when this returns."""
    waiting: list[Any] = [clients[0].send(TOPIC, b"pending") for _ in range(3)]
    waiting.append(asyncio.create_task(clients[1].poll(60)))
    await asyncio.sleep(0)
    return waiting


def new_loop(kind: str) -> asyncio.AbstractEventLoop:
    if kind == "uvloop":
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


# -- forks


def connected_to(servers: str) -> int:
    """Return how many sockets of this process are connected to one of the servers."""
    port, count = int(servers.rpartition(":")[2]), 0
    for name in os.listdir("/dev/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as copy:
                count += copy.getpeername()[1:2] == (port,)
        except OSError:
            continue  # This descriptor is not a socket, or is not connected.
    return count


async def try_all(clients: list[Any]) -> None:
    """Try to use the clients of the parent."""
    producer, classic, kip848, transactional, admin = clients
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("send", lambda: producer.send(TOPIC, b"of the child")),
        ("send_threadsafe", lambda: producer.send_threadsafe(TOPIC, b"of the child").result(10)),
        ("poll", lambda: classic.poll(1)),
        ("commit", lambda: kip848.commit()),
        ("commit_transaction", lambda: transactional.commit_transaction()),
        ("describe_cluster", lambda: admin.describe_cluster()),
    ]
    for name, call in calls:
        try:
            result = call()
            if asyncio.iscoroutine(result):
                await result
            say("child:", name, "returned", result)
        except Exception as error:
            say("child:", name, "raised", type(error).__name__, str(error).split(".")[0])


async def use_in_child(clients: list[Any], servers: str) -> None:
    """Try to use the clients. Then let the background tasks of this event loop run."""
    say("child: connected", connected_to(servers))
    await try_all(clients)
    await asyncio.sleep(1)  # Longer than several heartbeat and metadata intervals.


def fork(servers: str, kind: str, child: Callable[[Any, list[Any]], None]) -> None:
    """Open clients, let a forked process use them, and use them again."""
    loop = new_loop(kind)
    clients = loop.run_until_complete(opened(servers))
    say("parent: connected", connected_to(servers) > 0)
    pid = os.fork()
    if not pid:
        child(loop, clients)
        os._exit(0)
    await_child(pid)
    loop.run_until_complete(end(clients))


def await_child(pid: int) -> None:
    """Wait for the child. The event loop of the parent does not run in the meantime."""
    say("child ended with", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


async def end(clients: list[Any]) -> None:
    """Use and close all clients."""
    producer, classic, kip848, transactional, admin = clients
    say("parent: offset", (await producer.send(TOPIC, b"second")).offset)
    await transactional.commit_transaction()
    for consumer in (classic, kip848):
        await consumer.commit()
    say("parent: brokers", len((await admin.describe_cluster()).brokers))
    for client in clients:
        await client.close()


def fork_and_go_on(servers: str, kind: str) -> None:
    """Use the clients in the copy of their event loop."""
    fork(servers, kind, lambda loop, all_: loop.run_until_complete(use_in_child(all_, servers)))


def fork_and_run_another(servers: str, kind: str) -> None:
    """Use the clients in another event loop."""
    fork(servers, kind, lambda _, clients: asyncio.run(use_in_child(clients, servers)))


def fork_and_exit(servers: str, kind: str) -> None:
    """Fork, and exit the child after its copies of the clients were garbage collected."""

    def leave(loop: Any, clients: list[Any]) -> None:
        say("child: connected", connected_to(servers))
        clients.clear()
        gc.collect()

    fork(servers, kind, leave)


def fork_within(servers: str, kind: str) -> None:
    """Fork in a coroutine, as `multiprocessing` does. The child never returns to the loop."""

    async def main() -> None:
        clients = await opened(servers)
        say("parent: connected", connected_to(servers) > 0)
        pid = os.fork()
        if not pid:
            asyncio.run(use_in_child(clients, servers))
            os._exit(0)
        await_child(pid)
        await end(clients)

    new_loop(kind).run_until_complete(main())


def fork_and_sys_exit(servers: str, kind: str) -> None:
    """Call sys.exit() in a forked process, within the blocks of all kinds of clients."""

    async def main() -> None:
        options: dict[str, Any] = {
            "bootstrap_servers": servers,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        async with (
            Client(**options) as client,
            Producer[Any, Any](client=client) as producer,
            Admin(**options) as admin,
            Consumer[Any, Any](TOPIC, group_id="g", **options),
            Producer[Any, Any](transactional_id="x", **options) as transactional,
            aclosing(work_pool("pool", {"item": 1}, **options)) as pool,
            transactional.transaction() as tx,
            await anext(pool),
            single_writer("writer", **options) as writer,
        ):
            await tx.send(TOPIC, b"in a transaction")
            pid = os.fork()
            if not pid:
                sys.exit(3)
            await_child(pid)
            await producer.send(TOPIC, b"second")
            await writer.send(TOPIC, b"third")
            say("parent: brokers", len((await admin.describe_cluster()).brokers))

    new_loop(kind).run_until_complete(main())


# -- ends of the interpreter and of the loop


def exit_without_closing_the_loop(servers: str, kind: str) -> None:
    """Reach the end of the program with an open loop."""
    loop = new_loop(kind)
    KEPT.extend(loop.run_until_complete(opened(servers)))
    KEPT.extend(loop.run_until_complete(leave_unfinished(KEPT)))
    KEPT.append(loop)


def exit_within(servers: str, kind: str) -> None:
    """Call sys.exit() in a coroutine while no broker responds."""

    async def main() -> None:
        async with ProxyConnector() as connector:
            clients = await opened(servers, connector=connector)
            connector.faults.frozen = True
            KEPT.extend(await leave_unfinished(clients))
            KEPT.extend(clients)
            sys.exit(7)

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        runner.run(main())


def exit_beside_the_loop(servers: str, kind: str) -> None:
    """Reach the end of the program while the loop runs in a daemon thread."""
    loop, ready = new_loop(kind), threading.Event()

    def run() -> None:
        KEPT.extend(loop.run_until_complete(opened(servers)))
        ready.set()
        loop.run_forever()

    threading.Thread(target=run, daemon=True).start()
    ready.wait()


def interrupt(servers: str, kind: str) -> None:
    """Get SIGINT while the clients are open."""

    async def main() -> None:
        KEPT.extend(await opened(servers))
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    with asyncio.Runner(loop_factory=lambda: new_loop(kind)) as runner:
        runner.run(main())


def close_the_loop(servers: str, kind: str) -> None:
    """Close the event loop of open clients. Then use the clients, and drop them."""
    loop = new_loop(kind)
    clients = loop.run_until_complete(opened(servers))
    waiting = loop.run_until_complete(leave_unfinished(clients))
    for task in waiting[3:]:
        task.cancel()
    loop.run_until_complete(asyncio.wait(waiting[3:]))
    loop.close()
    for client in clients:
        for call in (client.metrics, lambda client=client: asyncio.run(client.close())):
            try:
                call()
                say("a call has succeeded")
            except Exception as error:
                say(type(client).__name__, type(error).__name__)
    try:
        clients[0].send_threadsafe(TOPIC, b"too late")
    except Exception as error:
        say("send_threadsafe", type(error).__name__)
    clients.clear()
    waiting.clear()
    del client, call
    gc.collect()
    say("threads:", *(t.name for t in threading.enumerate() if not t.daemon))


KEPT: list[Any] = []
"""The objects that must exist until the end of the process."""
WAYS: Mapping[str, Callable[[str, str], None]] = {
    way.__name__: way
    for way in (
        fork_and_go_on,
        fork_and_run_another,
        fork_and_exit,
        fork_within,
        fork_and_sys_exit,
        exit_without_closing_the_loop,
        exit_within,
        exit_beside_the_loop,
        interrupt,
        close_the_loop,
    )
}

if __name__ == "__main__":
    given, how, chosen_loop = sys.argv[1:]
    WAYS[how](given, chosen_loop)
    say("over")
