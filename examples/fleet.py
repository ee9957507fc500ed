"""Twenty clients, seen from the cluster: one is slow, one fails, and one becomes silent.

The clients push their metrics to the cluster (KIP-714), an embedded one with a receiver. Nobody
asks the clients themselves: `fleet_metrics.py` finds the three in the pushed metrics. Meanwhile the
operator changes the subscription, so that the clients push more, and more often.

    python examples/fleet.py            a live table, and at the end fleet.png, in some 10 seconds

Besides the producers, consumers, and admins of this library, there are some of librdkafka
(confluent-kafka) and of Java (Kafka's console tools, if they are on the PATH). If these are
missing, the example says so, and runs more clients of this library instead. It needs rich, and for
the picture matplotlib: `pip install rich matplotlib confluent-kafka`.
"""

import argparse
import asyncio
import logging
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fleet_metrics import PREFIX, Fleet
from rich.console import Console
from rich.live import Live

from aiokclient import (
    Admin,
    ConfigResource,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster

CLIENTS = 20
PARTITIONS = 3
FEW = ("producer.connection.", "consumer.connection.", "admin.client.connection.")
FEW += ("producer.record.", "producer.request.latency.", "consumer.fetch.manager.records.")
START_S = 15  # Java's tools may take longer to start than the others.
PAUSE_S = 0.1  # The time between two records of a client.


class Troubles:
    """The events that make clients go wrong. Only the clients themselves know them."""

    def __init__(self) -> None:
        self.too_large = asyncio.Event()
        self.killed = asyncio.Event()


# -- clients of this library -------------------------------------------------------------------


async def shop(servers: str, name: str, too_large: asyncio.Event | None = None) -> None:
    """Produce orders and, after an event, records that are larger than the topic allows."""
    async with Producer(bootstrap_servers=servers, client_id=name) as producer:
        while True:
            size = 5_000 if too_large is not None and too_large.is_set() else 100
            with suppress(KafkaError):
                await producer.send("orders", bytes(size))
            await asyncio.sleep(PAUSE_S)


async def ledger(servers: str, name: str) -> None:
    """Produce payments in transactions."""
    async with Producer(
        bootstrap_servers=servers, client_id=name, transactional_id=name
    ) as producer:
        while True:
            async with producer.transaction() as transaction:
                transaction.send("payments", b"5 EUR")
            await asyncio.sleep(PAUSE_S)


async def read(servers: str, name: str, group: str | None, protocol: str = "classic") -> None:
    """Consume orders, as a member of a group or by assignment."""
    consumer = Consumer(
        bootstrap_servers=servers, client_id=name, group_id=group, group_protocol=protocol
    )
    if group is None:
        consumer.assign([TopicPartition("orders", number) for number in range(PARTITIONS)])
    else:
        consumer.subscribe(["orders"])
    async with consumer:
        async for _ in consumer:
            pass


async def inspect(servers: str, name: str) -> None:
    """List the topics again and again."""
    async with Admin(bootstrap_servers=servers, client_id=name) as admin:
        while True:
            await admin.list_topics()
            await asyncio.sleep(PAUSE_S)


async def depot(servers: str, name: str, killed: asyncio.Event) -> None:
    """Run a shop in a process of its own, which is killed at an event."""
    async with process(sys.executable, __file__, "--client", name, servers):
        await killed.wait()


# -- other clients -----------------------------------------------------------------------------


def produce_by_librdkafka(servers: str, ended: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "client.id": "kiosk", "log_level": 0})
    while not ended.wait(PAUSE_S):
        producer.produce("orders", b"tea")
        producer.poll(0)
    producer.flush(1)


def consume_by_librdkafka(servers: str, ended: threading.Event) -> None:
    from confluent_kafka import Consumer

    options = {"bootstrap.servers": servers, "client.id": "archive", "group.id": "archives"}
    consumer = Consumer({**options, "log_level": 0})
    consumer.subscribe(["orders"])
    while not ended.is_set():
        consumer.poll(PAUSE_S)
    consumer.close()


async def in_thread(client: Callable[[str, threading.Event], None], servers: str) -> None:
    """Run a client that blocks, until this task is cancelled."""
    ended = threading.Event()
    thread = asyncio.create_task(asyncio.to_thread(client, servers, ended))
    try:
        await asyncio.shield(thread)
    finally:
        ended.set()
        await thread


async def console_tool(path: str, servers: str) -> None:
    """Run a console tool of Kafka; the producer reads records from its standard input."""
    async with process(path, "--bootstrap-server", servers, "--topic", "orders") as child:
        assert child.stdin is not None
        while child.returncode is None:
            child.stdin.write(b"coffee\n")
            await asyncio.sleep(PAUSE_S)


@asynccontextmanager
async def process(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a process, and kill it at the end of the `async with` block."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=null, stderr=null)
    try:
        yield child
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def other_clients(servers: str, console: Console) -> list[Coroutine[Any, Any, None]]:
    """Return the clients of librdkafka and Java that are installed; print which are left out."""
    found: list[Coroutine[Any, Any, None]] = []
    if find_spec("confluent_kafka"):
        found.append(in_thread(produce_by_librdkafka, servers))
        found.append(in_thread(consume_by_librdkafka, servers))
    else:
        console.print("left out: librdkafka (the package confluent-kafka is not installed)")
    for name in ("kafka-console-producer.sh", "kafka-console-consumer.sh"):
        if path := shutil.which(name):
            found.append(console_tool(path, servers))
        else:
            console.print(f"left out: Java ({name} is not on the PATH)")
    return found


def all_clients(
    servers: str, troubles: Troubles, console: Console
) -> list[Coroutine[Any, Any, None]]:
    """Return the twenty clients."""
    clients = [
        depot(servers, "depot", troubles.killed),
        shop(servers, "shop-1", troubles.too_large),
        *(ledger(servers, f"ledger-{number}") for number in (1, 2)),
        *(read(servers, f"audit-{number}", None) for number in (1, 2)),
        *(read(servers, f"billing-{number}", "billing") for number in (1, 2)),
        *(read(servers, f"search-{number}", "search", "consumer") for number in (1, 2)),
        *(inspect(servers, f"desk-{number}") for number in (1, 2)),
        *other_clients(servers, console),
    ]
    more = CLIENTS - len(clients)
    return clients + [shop(servers, f"shop-{number}") for number in range(2, more + 2)]


# -- the operator ------------------------------------------------------------------------------


async def subscribe(admin: Admin, metrics: str, interval_ms: int) -> None:
    """Set which metrics all clients push, and how often."""
    changes = {"metrics": metrics, "interval.ms": interval_ms}
    resource = ConfigResource.client_metrics("fleet")
    (await admin.alter_configs({resource: changes})).raise_for_errors()


async def operate(
    fleet: Fleet, cluster: EmbeddedCluster, admin: Admin, troubles: Troubles, console: Console
) -> None:
    """Change the subscription, let three clients go wrong, and wait until they are found."""
    with suppress(TimeoutError):
        async with asyncio.timeout(START_S):
            await fleet.until(lambda: len(fleet.clients) == CLIENTS)
    console.print(f"{len(fleet.clients)} of {CLIENTS} clients push some metrics every second")
    before = {client: client.pushes[-1] for client in fleet.clients.values()}
    await subscribe(admin, "*", 500)
    await fleet.until(
        lambda: all(client.pushes[-1].series > push.series for client, push in before.items())
    )
    console.print("the subscription has changed: they push all metrics, twice a second")
    troubles.too_large.set()
    troubles.killed.set()
    with cluster.delay(ApiKey.PRODUCE, 1.0, where=lambda it: it.transactional_id == "ledger-2"):
        console.print("three clients go wrong ...")
        await fleet.until(lambda: fleet.decided)


async def show(fleet: Fleet, console: Console) -> None:
    """Show the table while pushes arrive."""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(fleet.table(), refresh=True)
            await fleet.change()
            await asyncio.sleep(PAUSE_S)


async def run(fleet: Fleet, console: Console, seconds: float) -> None:
    """Run all clients until the three with problems are found, but at most `seconds`."""
    troubles = Troubles()
    async with EmbeddedCluster(telemetry=fleet) as cluster:
        servers = cluster.bootstrap_servers
        async with (
            Admin(bootstrap_servers=servers, enable_metrics_push=False) as admin,
            asyncio.TaskGroup() as tasks,
        ):
            orders = NewTopic("orders", PARTITIONS, configs={"max.message.bytes": "2000"})
            (await admin.create_topics([orders, NewTopic("payments", 1)])).raise_for_errors()
            await subscribe(admin, ",".join(PREFIX + each for each in FEW), 1000)
            work = all_clients(servers, troubles, console)
            if console.is_terminal:
                work.append(show(fleet, console))
            running = [tasks.create_task(each) for each in work]
            try:
                async with asyncio.timeout(seconds):
                    await operate(fleet, cluster, admin, troubles, console)
            except TimeoutError:
                console.print(f"not all three were found in {seconds:.0f} s")
            finally:
                fleet.freeze()
                for task in running:
                    task.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--png", type=Path, default=Path("fleet.png"), help="the file to draw")
    parser.add_argument("--seconds", type=float, default=25, help="the longest time to search (25)")
    parser.add_argument("--client", nargs=2, metavar=("NAME", "SERVERS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        name, servers = options.client
        asyncio.run(shop(servers, name))
    # The library's log messages about failures would appear between the lines of the table.
    logging.getLogger("aiokclient").setLevel(logging.CRITICAL)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    fleet = Fleet()
    try:
        asyncio.run(run(fleet, console, options.seconds))
    except KeyboardInterrupt:
        return 130
    console.print(fleet.table())
    for name, finding in fleet.findings().items():
        console.print(f"{name}: {finding.what} since {finding.since:.1f} s")
    try:
        fleet.draw(options.png)
        console.print(f"{options.png} shows when")
    except ModuleNotFoundError:
        console.print("left out: the picture (the package matplotlib is not installed)")
    return 0 if fleet.decided else 1


if __name__ == "__main__":
    sys.exit(main())
