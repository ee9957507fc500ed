"""A workload of transactions with seeded faults in a simulation: three producers, three brokers.

A seed determines the level of transaction.version, the options, whether the producers share a
client, what each transaction does, when it fails or is cancelled, and the faults, which occur for
twelve virtual seconds. The program handles errors by the three clauses of the documentation. The
invariants, with their letters in tests/faults.md:

    B   the records of a producer are in their order within a partition
    D   no call lasts longer than its deadline
    E   after the faults, each producer commits a transaction
    H   closing takes a limited time and leaves no task and no connection
    K   a transaction is visible as a whole, with its offset, or not at all, as its outcome says

``python tests/harness/transacting.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Literal, TypeVar

import seeded
from ledger import BrokenInvariantError
from seeded import TOPICS, choice_of

from aiokclient import (
    Client,
    Consumer,
    GroupMetadata,
    Producer,
    TopicPartition,
    Transaction,
    TransactionOutcome,
)
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    IllegalStateError,
    InvalidConfigurationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    RequestTimedOutError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionalIdAuthorizationError,
    UnknownServerError,
)
from aiokclient.protocol import ApiKey

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
PRODUCERS = 3
INPUT = TopicPartition("in", 0)
TPS = [TopicPartition(topic, n) for topic, count in TOPICS.items() for n in range(count)]
API_S, CLOSE_S, DELIVERY_S = 4.0, 3.0, 5.0
COMMIT_S = DELIVERY_S + 1.0 + API_S
SLACK_S = 0.25
WHEN: list[Literal["before", "after"]] = ["before", "after"]
RECOVERY_S = 30.0
"""The time for a commit after the faults. It exceeds each `transaction_timeout_ms`."""
T = TypeVar("T")

COORDINATION: list[Any] = [
    NotCoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ConcurrentTransactionsError,
    TransactionAbortableError,
    ProducerFencedError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    TransactionalIdAuthorizationError,
    UnknownServerError,
]
REFUSALS: dict[ApiKey, list[Any]] = {
    ApiKey.FIND_COORDINATOR: COORDINATION[1:3],
    ApiKey.INIT_PRODUCER_ID: COORDINATION,
    ApiKey.ADD_PARTITIONS_TO_TXN: COORDINATION,
    ApiKey.ADD_OFFSETS_TO_TXN: COORDINATION,
    ApiKey.TXN_OFFSET_COMMIT: COORDINATION,
    ApiKey.END_TXN: COORDINATION,
    ApiKey.PRODUCE: [
        NotLeaderOrFollowerError,
        NotEnoughReplicasError,
        RequestTimedOutError,
        TransactionAbortableError,
        InvalidTxnStateError,
        OutOfOrderSequenceError,
        TopicAuthorizationError,
    ],
}


class BodyError(Exception):
    """An error of the application in a transaction."""


class Attempt:
    """An attempt at a transaction: the values that it sent, and the producer's `Transaction`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.values: dict[TopicPartition, list[bytes]] = {}
        self.has_offset = False
        self.transaction: Transaction | None = None

    @property
    def outcome(self) -> TransactionOutcome | None:
        """The outcome of the transaction, or ABORTED if it did not begin."""
        return ABORTED if self.transaction is None else self.transaction.outcome

    def all_values(self) -> list[bytes]:
        return [value for values in self.values.values() for value in values]


class Author:
    """One producer, and all its transactions."""

    def __init__(self, workload: "TransactingWorkload", producer: Producer[Any, Any], name: str):
        self.workload, self.producer, self.name = workload, producer, name
        self.rng = workload.sim.rng
        self.attempts: list[Attempt] = []
        self.stopped = False
        self.errors: list[str] = []

    async def run(self) -> None:
        while not self.stopped:
            await self.make_attempt()
            await asyncio.sleep(self.rng.choice([0.0, 0.01, 0.3]))

    async def make_attempt(self) -> Attempt:
        """Run one transaction that may be cancelled, and handle its errors."""
        attempt = Attempt(len(self.attempts) + 1)
        self.attempts.append(attempt)
        way = self.rng.choice([self.in_a_block, self.in_calls])
        task = asyncio.ensure_future(way(attempt))
        cancel = self.rng.random() < 0.2 and not self.stopped
        if cancel:
            wait_s = self.rng.choice([0.005, 0.05, 0.5, 3.0]) * self.rng.random()
            asyncio.get_running_loop().call_later(wait_s, task.cancel)
        await self.handle(task, cancel)
        return attempt

    async def handle(self, task: asyncio.Task[None], cancel: bool) -> None:
        """Wait for the transaction, and do what the category of its error requires."""
        try:
            try:
                await task
            except (AbortableError, BodyError) as error:
                self.note(error)
                await self.abort()
            except asyncio.CancelledError:
                if not cancel:
                    raise
                await self.abort()
            except InvalidConfigurationError as error:
                self.note(error)
                await self.abort()
        except (InvalidConfigurationError, ApplicationRecoverableError) as error:
            self.note(error)
            await self.restart()

    async def abort(self) -> None:
        try:
            await self.bounded("abort", API_S, self.producer.abort_transaction())
        except AbortableError as error:
            raise BrokenInvariantError(f"abort_transaction() raised {error!r}.") from error
        except IllegalStateError:
            # No transaction is open. The attempt was cancelled before its begin or after its end.
            engine = self.producer._engine
            assert engine is not None
            assert engine.transactions is not None
            assert engine.transactions.status.state.name == "READY"

    async def restart(self) -> None:
        while True:
            try:
                await self.bounded("restart", API_S, self.producer.restart())
            except (
                AbortableError,
                InvalidConfigurationError,
                ApplicationRecoverableError,
            ) as error:
                self.note(error)
                await asyncio.sleep(0.1)
            else:
                return

    def note(self, error: Exception) -> None:
        self.errors.append(f"{type(error).__name__}: {error}")

    async def bounded(self, what: str, limit_s: float, call: Awaitable[T]) -> T:
        return await self.workload.bounded(f"{what} of {self.name}", limit_s, call)

    # -- the two styles

    async def in_a_block(self, attempt: Attempt) -> None:
        began = 0.0
        try:
            async with self.producer.transaction() as tx:
                attempt.transaction = tx
                await self.work(attempt)
                began = self.workload.sim.loop.time()
        finally:
            if began:
                took_s = self.workload.sim.loop.time() - began
                if took_s > COMMIT_S + CLOSE_S + SLACK_S:
                    raise BrokenInvariantError(f"D: leaving a transaction took {took_s:.3f} s")

    async def in_calls(self, attempt: Attempt) -> None:
        await self.bounded("begin", API_S, self.producer.begin_transaction())
        attempt.transaction = self.producer.last_transaction
        await self.work(attempt)
        await self.bounded("commit", COMMIT_S, self.producer.commit_transaction())

    async def work(self, attempt: Attempt) -> None:
        for tp in self.rng.sample(TPS, self.rng.randint(1, 4)):
            for _ in range(self.rng.choice([1, 1, 5])):
                number = sum(map(len, attempt.values.values()))
                value = f"{self.name} {attempt.number} {number}".encode()
                delivery = self.producer.send(tp.topic, value, partition=tp.partition)
                attempt.values.setdefault(tp, []).append(value)
                if self.rng.random() < 0.1:
                    await self.bounded("delivery", DELIVERY_S + 1, delivery)
        if self.rng.random() < 0.5:
            attempt.has_offset = True
            member, offsets = GroupMetadata(self.name), {INPUT: attempt.number}
            send = self.producer.send_offsets_to_transaction(offsets, member)
            await self.bounded("offsets", API_S, send)
        if self.rng.random() < 0.2 and not self.stopped:
            await asyncio.sleep(self.rng.choice([0.1, 1.0, 6.0]))
        if self.rng.random() < 0.1 and not self.stopped:
            raise BodyError


class TransactingWorkload(seeded.Workload):
    """One run. Its attributes are set as it proceeds."""

    async def main(self, sim: Any) -> seeded.Outcome:
        self.sim = sim
        self.authors: list[Author] = []
        level = sim.rng.choice([0, 1, 2, 2])
        options = {"topics": {**TOPICS, "in": 1}, "transaction_version": level}
        async with sim.cluster(brokers=self.brokers, **options) as self.cluster:
            await self.with_clients()
            await asyncio.sleep(1)
            self.check_leaks()
            await self.check_transactions()
        now, made = sim.loop.time(), sim.network.connections_made
        return seeded.Outcome(sim.seed, sim.trace, self.summary(), round(now, 6), made, self.faults)

    async def with_clients(self) -> None:
        share = self.sim.rng.choice([True, False])
        async with AsyncExitStack() as stack:
            client = None
            if share:
                client = await stack.enter_async_context(Client(**self.options()))
            for number in range(PRODUCERS):
                name = f"t-{number}"
                producer = self.transactional(name, client)
                await self.start(producer)
                stack.push_async_callback(self.close, producer)
                self.authors.append(self.author(producer, name))
            async with asyncio.TaskGroup() as group:
                for author in self.authors:
                    group.create_task(author.run())
                await self.break_things()
                for author in self.authors:
                    author.stopped = True
                self.heal()
            for author in self.authors:
                await self.recover(author)

    def transactional(self, name: str, client: Client | None) -> Producer[Any, Any]:
        choose = self.sim.rng.choice
        options: dict[str, Any] = {
            "transactional_id": name,
            "linger_ms": choice_of(choose, 0, 5, 100),
            "batch_size": choice_of(choose, 250, 16_384),
            "transaction_timeout_ms": choice_of(choose, 2_000, 5_000, 20_000),
            "default_api_timeout_ms": int(API_S * 1000),
            "delivery_timeout_ms": int(DELIVERY_S * 1000),
            "close_timeout_ms": int(CLOSE_S * 1000),
            "request_timeout_ms": 2_000,
        }
        if client is None:
            return Producer(**{**self.options(), **options})
        return Producer(client=client, **options)

    def author(self, producer: Producer[Any, Any], name: str) -> Author:
        return Author(self, producer, name)

    async def start(self, producer: Producer[Any, Any]) -> None:
        await producer.start()

    async def close(self, producer: Producer[Any, Any]) -> None:
        await self.bounded("close", CLOSE_S, producer.close())

    async def recover(self, author: Author) -> None:
        """E: commit a transaction within RECOVERY_S after the faults."""
        async with asyncio.timeout(RECOVERY_S):
            committed = False
            while not committed:
                committed = (await author.make_attempt()).outcome is COMMITTED

    # -- the faults

    def kinds(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            self.cut_connections,
            self.bad_weather,
            self.partition_network,
            self.stop_broker,
            self.pause_broker,
            self.move_leaders,
            self.refuse_requests,
            self.refuse_requests,
            self.lose_answers,
            self.lose_answers,
            self.slow_answers,
            self.move_coordinators,
            self.hold_markers,
            self.time_out,
            self.upgrade,
        ]

    async def refuse_requests(self) -> None:
        rng = self.sim.rng
        api = rng.choice(list(REFUSALS))
        with self.cluster.fail(api, rng.choice(REFUSALS[api]), times=rng.randint(1, 10)):
            await self.a_while(4)

    async def lose_answers(self) -> None:
        rng = self.sim.rng
        api, when = rng.choice(list(REFUSALS)), rng.choice(WHEN)
        with self.cluster.drop(api, when=when, times=rng.randint(1, 4)):
            await self.a_while(4)

    async def slow_answers(self) -> None:
        rng = self.sim.rng
        api, when = rng.choice(list(REFUSALS)), rng.choice(WHEN)
        with self.cluster.delay(api, rng.uniform(0.1, 5), when=when, times=3):
            await self.a_while(4)

    async def move_coordinators(self) -> None:
        for author in self.authors:
            with contextlib.suppress(ValueError):
                self.cluster.move_coordinator(author.name)

    async def hold_markers(self) -> None:
        with self.cluster.hold_markers():
            await self.a_while(4)

    async def time_out(self) -> None:
        with contextlib.suppress(ValueError):  # No transaction is open.
            self.cluster.time_out_transaction(self.sim.rng.choice(self.authors).name)

    async def upgrade(self) -> None:
        self.cluster.set_transaction_version(2)

    # -- the invariants

    async def check_transactions(self) -> None:
        """Check B and K with the data that read_committed readers see."""
        async with Consumer[Any, Any](
            **self.options(), isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(TPS)
            seen: dict[bytes | None, list[TopicPartition]] = {}
            order: dict[TopicPartition, list[bytes | None]] = {tp: [] for tp in TPS}
            async for record in consumer.until_end():
                tp = TopicPartition(record.topic, record.partition)
                seen.setdefault(record.value, []).append(tp)
                order[tp].append(record.value)
        for author in self.authors:
            await self.check_author(author, seen, order)
        if seen:
            raise BrokenInvariantError(f"K: Records are from no transaction: {list(seen)[:5]}")

    async def check_author(
        self,
        author: Author,
        seen: dict[bytes | None, list[TopicPartition]],
        order: dict[TopicPartition, list[bytes | None]],
    ) -> None:
        stored: int | None = None
        sent: dict[TopicPartition, list[bytes]] = {}
        for attempt in author.attempts:
            partitions = [seen.pop(value, []) for value in attempt.all_values()]
            whole = all(partitions) and bool(partitions)
            fits = {
                COMMITTED: whole or not partitions,
                ABORTED: not any(partitions),
                UNKNOWN: whole or not any(partitions),
                None: False,
            }[attempt.outcome]
            if not fits or any(len(each) > 1 for each in partitions):
                text = f"K: {author.name}, {attempt.number}: {attempt.outcome}, {partitions}"
                raise BrokenInvariantError(text)
            if not whole:
                continue
            for tp, values in attempt.values.items():
                sent.setdefault(tp, []).extend(values)
            if attempt.has_offset:
                stored = attempt.number
        for tp, values in sent.items():
            name = f"{author.name} ".encode()
            mine = [each for each in order[tp] if each and each.startswith(name)]
            if mine != values:
                raise BrokenInvariantError(f"B: {tp} has the values {mine}, not {values}.")
        found = self.cluster.committed(author.name).get(INPUT)
        if (None if found is None else found.offset) != stored:
            raise BrokenInvariantError(f"K: {author.name} has committed {found}, not {stored}.")

    def summary(self) -> str:
        outcomes = [attempt.outcome for author in self.authors for attempt in author.attempts]
        counts = {each.value: outcomes.count(each) for each in TransactionOutcome}
        errors = sum(len(author.errors) for author in self.authors)
        return f"{counts}, {errors} errors"


def run(seed: int) -> seeded.Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    return seeded.run(seed, TransactingWorkload)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
