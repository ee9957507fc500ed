"""The clients of a soak that belong to no group: producers, readers, transactions, an observer.

Everything that they do and see goes to `note`. They use only the public API.
"""

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

from ledger import Payload, pack

from aiokclient import (
    Admin,
    Client,
    Consumer,
    Producer,
    TopicPartition,
    TransactionOutcome,
)
from aiokclient.errors import (
    AbortableError,
    ApiTimeoutError,
    ApplicationRecoverableError,
    RetriableError,
)

from .checks import ATOMIC, COPIES, PLAIN, READING_GROUPS, TPS_BY_TOPIC
from .entries import (
    Acknowledged,
    Buffered,
    Called,
    Committed,
    Ended,
    Entry,
    Read,
    Sent,
    Trouble,
    Undelivered,
)

T = TypeVar("T")
CALL_S = 60.0
"""The limit of calls without a timeout of their own: `default_api_timeout_ms`."""
CLOSE_S = 10.0
DELIVERY_S = 120.0
BUFFER_MEMORY = 4 << 20
FETCH_BYTES = 1 << 20
NOTED_AT_ONCE = 50
"""The number of records that a reader checks before it yields to the event loop. Each check takes
longer while many transactions are open."""
ABORTED_SHARE = 0.3
OUTCOMES = {
    TransactionOutcome.COMMITTED: "committed",
    TransactionOutcome.ABORTED: "aborted",
    TransactionOutcome.UNKNOWN: "unknown",
}


class Pace(Protocol):
    """The speed of a workload."""

    record_s: float
    """Seconds between two records of a producer."""
    transaction_s: float
    observation_s: float


class Workload:
    """The clients of a run, which `running` starts and closes.

    `options(number, name)` returns the options of a client: its servers, its security, and the
    connector of its side.
    """

    def __init__(
        self,
        options: Callable[[int, str], dict[str, Any]],
        note: Callable[[Entry], None],
        pace: Pace,
        rng: random.Random,
    ) -> None:
        self.options, self.note, self.pace, self.rng = options, note, pace, rng
        self.clients: dict[str, Any] = {}
        self.limits: dict[str, tuple[str, int]] = {}
        self.sending = True
        self.counts: dict[str, int] = {}
        self._numbers = itertools.count()
        self._listeners: list[Callable[[str, Any], None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}

    # -- for all clients

    def client_options(self, name: str, **more: Any) -> dict[str, Any]:
        """Return the options of the next client. Clients alternate between the two sides."""
        return {**self.options(next(self._numbers), name), "client_id": name, **more}

    def on_opened(self, listener: Callable[[str, Any], None]) -> None:
        """Call `listener(name, client)` for each client when it is created."""
        self._listeners.append(listener)

    @asynccontextmanager
    async def opened(self, name: str, client: T) -> AsyncIterator[T]:
        """Start a client, and close it at the end of the block, each within its limit."""
        made: Any = client
        self.clients[name] = made
        for listener in self._listeners:
            listener(name, made)
        try:
            await self.bounded(f"start of {name}", CALL_S, made.start())
            yield client
        finally:
            self.clients.pop(name)
            await self.bounded(f"close of {name}", CLOSE_S, made.close(CLOSE_S))

    async def bounded(self, what: str, limit_s: float, call: Awaitable[T]) -> T:
        """Return the result of a call, and note how long it took (promise D)."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await call
        finally:
            self.note(Called(what, loop.time() - began, limit_s))

    def spawn(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task that must not fail."""

        async def watched() -> None:
            try:
                await work
            except Exception as error:
                self.note(Trouble("E", f"{name} has failed: {error!r}"))

        task = asyncio.get_running_loop().create_task(watched(), name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def sample(self) -> None:
        """Note the bytes that each client holds (promise I), and each client that has failed."""
        for name, client in list(self.clients.items()):
            if client.state.name == "FAILED":
                self.note(Trouble("E", f"{name} is FAILED: {client.health().reasons}"))
            metric, limit = self.limits.get(name, ("", 0))
            if metric and client.state.name in ("RUNNING", "DEGRADED"):
                held = sum(each.value for each in client.metric_values(metric))
                self.note(Buffered(f"{metric} of {name}", int(held), limit))

    # -- running

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all clients until the end of the block, and then close them."""
        async with AsyncExitStack() as stack:
            shared = await stack.enter_async_context(
                self.opened("shared", Client(**self.client_options("shared")))
            )
            await self._open_readers(stack, shared)
            first = self._producer("producer-0")
            second = Producer[Any, Any](client=shared, **self._producer_options())
            self.limits["producer-1"] = ("producer.buffer.bytes", BUFFER_MEMORY * 3 // 2)
            for number, producer in enumerate((first, second)):
                name = f"producer-{number}"
                opened = await stack.enter_async_context(self.opened(name, producer))
                self.spawn(name, self.produce(opened, number))
            atomic = self._producer("atomic", transactional_id="soak-atomic")
            opened = await stack.enter_async_context(self.opened("atomic", atomic))
            self.spawn("atomic", self.transact(opened, 0))
            admin = Admin(**self.client_options("observer"))
            opened_admin = await stack.enter_async_context(self.opened("observer", admin))
            self.spawn("observer", self.observe(opened_admin))
            try:
                yield
            finally:
                await self.stop()

    async def stop(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _producer_options(self) -> dict[str, Any]:
        return {
            "buffer_memory": BUFFER_MEMORY,
            "linger_ms": 5,
            "compression_type": "lz4",
            "delivery_timeout_ms": int(1000 * DELIVERY_S),
        }

    def _producer(self, name: str, **more: Any) -> Producer[Any, Any]:
        self.limits[name] = ("producer.buffer.bytes", BUFFER_MEMORY * 3 // 2)
        return Producer(**self.client_options(name, **self._producer_options(), **more))

    async def _open_readers(self, stack: AsyncExitStack, shared: Client) -> None:
        whole: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_bytes": FETCH_BYTES}
        plain = Consumer[Any, Any](client=shared, **whole)
        committed = Consumer[Any, Any](
            **self.client_options("reader-committed", isolation_level="read_committed", **whole)
        )
        wanted: Iterable[tuple[str, Consumer[Any, Any], list[TopicPartition]]] = (
            ("reader-plain", plain, TPS_BY_TOPIC[PLAIN]),
            ("reader-committed", committed, [*TPS_BY_TOPIC[COPIES], *TPS_BY_TOPIC[ATOMIC]]),
        )
        for name, consumer, tps in wanted:
            # The buffer may hold two responses of each of three brokers.
            self.limits[name] = ("consumer.buffer.bytes", 2 * 3 * FETCH_BYTES)
            consumer.assign(tps)
            opened = await stack.enter_async_context(self.opened(name, consumer))
            self.spawn(name, self.read(name, opened))

    # -- what they do

    async def produce(self, producer: Producer[Any, Any], number: int) -> None:
        """Send records to all partitions in turn, until `sending` is False."""
        sequences = dict.fromkeys(TPS_BY_TOPIC[PLAIN], 0)
        for tp in itertools.cycle(TPS_BY_TOPIC[PLAIN]):
            if not self.sending:
                return
            sequence, sequences[tp] = sequences[tp], sequences[tp] + 1
            payload = Payload(tp.topic, tp.partition, number, sequence)
            self.note(Sent(number, tp, sequence))
            delivery = producer.send(tp.topic, pack(payload, 100), partition=tp.partition)
            delivery.add_done_callback(functools.partial(self._delivered, number, tp, sequence))
            await self.bounded("drain()", DELIVERY_S, producer.drain())
            await asyncio.sleep(self.pace.record_s)

    def _delivered(self, number: int, tp: TopicPartition, sequence: int, delivery: Any) -> None:
        error = delivery.exception()
        if error is None:
            self.note(Acknowledged(number, tp, sequence, delivery.offset))
        else:
            self.note(Undelivered(number, tp, sequence, repr(error)))

    async def read(self, name: str, consumer: Consumer[Any, Any]) -> None:
        """Read everything, in polls with a deadline."""
        while True:
            what = f"poll() of {name}"
            call = consumer.poll(timeout=2.0, max_records=NOTED_AT_ONCE)
            for record in await self.bounded(what, 2.0, call):
                tp = TopicPartition(record.topic, record.partition)
                self.note(Read(tp, record.offset, bytes(record.value or b"")))
            await asyncio.sleep(0)

    async def transact(self, producer: Producer[Any, Any], number: int) -> None:
        """Write transactions of one record for each partition, and abort some on purpose."""
        for sequence in itertools.count():
            if not self.sending:
                return
            call = self._transaction(producer, number, sequence)
            await self.bounded("a transaction", DELIVERY_S + CALL_S, call)
            await asyncio.sleep(self.pace.transaction_s)

    async def _transaction(self, producer: Producer[Any, Any], number: int, sequence: int) -> None:
        abort = self.rng.random() < ABORTED_SHARE
        transaction = producer.transaction()
        try:
            async with transaction:
                for tp in TPS_BY_TOPIC[ATOMIC]:
                    self.note(Sent(number, tp, sequence))
                    value = pack(Payload(tp.topic, tp.partition, number, sequence), 100)
                    transaction.send(tp.topic, value, partition=tp.partition)
                if abort:
                    await producer.flush()
                    raise AbortedOnPurpose
        except AbortedOnPurpose:
            pass
        except AbortableError:
            self.count("transactions aborted by errors")
        except ApplicationRecoverableError:
            self.count("restarts of a transactional producer")
            await self._restart(producer)
        self.note(Ended(number, sequence, self._outcome(transaction.outcome, abort)))

    def _outcome(self, outcome: TransactionOutcome | None, abort: bool) -> str:
        if abort and outcome is TransactionOutcome.COMMITTED:
            self.note(Trouble("K", "A transaction was committed that was aborted on purpose."))
        # A transaction that could not begin has no records.
        return "aborted" if outcome is None else OUTCOMES[outcome]

    async def _restart(self, producer: Producer[Any, Any]) -> None:
        while True:
            try:
                await self.bounded("restart()", CALL_S, producer.restart())
                return
            except AbortableError:
                self.count("repeated restarts of a transactional producer")

    async def observe(self, admin: Admin) -> None:
        """Look up the committed offsets of the groups periodically."""
        while True:
            await asyncio.sleep(self.pace.observation_s)
            try:
                results = await self.bounded(
                    "list_consumer_group_offsets()",
                    10.0,
                    admin.list_consumer_group_offsets(READING_GROUPS, timeout=10.0),
                )
            except (ApiTimeoutError, RetriableError):
                self.count("observations without a response in time")
                continue
            for group, offsets in results.succeeded.items():
                for tp, committed in offsets.items():
                    self.note(Committed(group, tp, committed.offset))


class AbortedOnPurpose(Exception):
    """An error that the program raises in a transaction, so that the transaction is aborted."""
