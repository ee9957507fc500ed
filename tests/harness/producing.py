"""Seeded pairs of public calls of producers without transactions, cancelled at their awaits.

It is the workload of `seeded`, with its faults, and with topics that get more partitions or are
created late. Each of two programs makes calls of a producer beside each other, cancels some of
them, closes the producer, and goes on with another one. Besides the invariants of `seeded`, with
their letters:

    A  a record that was refused at once is in no log, nor is one whose error says "not written"
    B  with idempotence, the acknowledged records of a task and partition are in order
    D  every delivery has its outcome by its deadline, and every one when `close` returns
    I  after a flush, the producer holds no memory
    K  a call raises only errors of the library, and is cancelled only if its task was
    L  nothing is logged as an error, and no task keeps an error that nobody retrieves

``python tests/harness/producing.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import gc
import json
import math
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import seeded
from call_pairs import logging_errors
from ledger import BrokenInvariantError, Ledger, Payload, pack
from seeded import RECOVERY_S, REQUEST_TIMEOUT_MS, SLACK_S, TOPICS

from aiokclient import Delivery, Producer, ProducerRecord, State
from aiokclient.errors import KafkaError

LATE, LATE_PARTITIONS = "late", 2
"""A topic that does not exist at first."""
MAX_BLOCK_S, CALL_S, CLOSE_S = 4.0, 3.0, 5.0
MOST_PARTITIONS = 5
PROGRAMS = 2


def read_partition(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    """Return the partition that the key names: a partitioner, which runs when these are known."""
    return int(key or b"0")


class Sent(NamedTuple):
    """A record that `send` or `send_many` has accepted."""

    payload: Payload
    delivery: Delivery
    at: float


class Call(NamedTuple):
    """A public call, and the seconds in which it must end."""

    name: str
    make: Callable[[], Coroutine[Any, Any, object]]
    limit_s: float


class Program:
    """A task that makes pairs of calls of one producer after another."""

    def __init__(self, workload: "CallingWorkload", name: str) -> None:
        self.workload, self.name = workload, name
        self.sim, self.rng, self.ledger = workload.sim, workload.sim.rng, workload.ledger
        self.sent: list[Sent] = []
        self.account: list[str] = []
        self.last = ""
        self.producer = self.make()

    # -- the producer

    def make(self) -> Producer[Any, Any]:
        """Return a new producer, which is not started."""
        workload = self.workload
        options = {"buffer_memory": 32 << 20, **workload.producer_options()}
        self.delivery_s: float = self.rng.choice([4.0, 8.0, 60.0])
        self.number = workload.next_number()
        self.sent.clear()
        producer = Producer[Any, Any](
            **options,
            client_id=self.name,
            enable_idempotence=workload.ledger.exactly_once,
            delivery_timeout_ms=int(self.delivery_s * 1000),
            max_block_ms=int(MAX_BLOCK_S * 1000),
            partitioner=read_partition,
        )
        most = options["buffer_memory"] * 3 // 2
        former = getattr(self, "producer", None)
        workload.limits = [each for each in workload.limits if each[0] is not former]
        workload.limits.append((producer, "producer.buffer.bytes", most))
        workload.limits.append((producer, "producer.overflow.bytes", most))
        return producer

    async def run(self) -> None:
        """Make calls until the faults end, and check that the last producer delivers."""
        while True:
            await self.workload.bounded("start", 60, self.producer.start())
            for _ in range(self.rng.randint(5, 60)):
                if self.workload.healed:
                    break
                await self.pair()
                await self.wait_a_little()
                self.check_deliveries()
            if self.workload.healed:
                break
            await self.close()
            self.producer = self.make()
        await self.deliver_everywhere()
        await self.close()

    async def close(self) -> None:
        """Close the producer, perhaps beside other calls, perhaps cancelled."""
        if self.rng.random() < 0.3:
            await self.pair([Call("close", self.producer.close, self.close_s(CLOSE_S))])
        limit = self.rng.choice([0.0, 0.5, CLOSE_S])
        await self.workload.bounded("close", self.close_s(limit), self.producer.close(limit))
        if self.producer.state is not State.CLOSED:
            raise BrokenInvariantError(f"D: {self.name} is {self.producer.state} after close().")
        open_ = [each for each in self.sent if not each.delivery.done()]
        if open_:
            raise BrokenInvariantError(f"D: {len(open_)} deliveries are open after close().")

    @staticmethod
    def close_s(timeout: float) -> float:
        """Return the seconds that a close with this timeout may take."""
        return timeout + 1.0

    async def deliver_everywhere(self) -> None:
        """E: check that, after the faults, each partition gets a record, and memory is released."""
        bounded = self.workload.bounded
        await bounded("flush", self.delivery_s, self.producer.flush())
        await self.check_pool()
        topics = self.workload.cluster.topics
        for topic, count in topics.items():
            for partition in range(count):
                self.send_to(topic, partition)
        last = [each.delivery for each in self.sent[-sum(topics.values()) :]]
        await bounded("the last records", RECOVERY_S, self.producer.gather(last))
        await bounded("flush", 1.0, self.producer.flush())
        await self.check_pool()

    async def check_pool(self) -> None:
        """I: check that the producer holds no memory when every record has its outcome.

        A request that is in flight still uses the bytes of records that have failed.
        """
        deadline = self.sim.loop.time() + REQUEST_TIMEOUT_MS / 1000 + SLACK_S
        names = ("producer.buffer.bytes", "producer.overflow.bytes")
        while any(held := [v.value for n in names for v in self.producer.metric_values(n)]):
            if self.sim.loop.time() > deadline:
                raise BrokenInvariantError(f"I: {names} are {held} after a flush.")
            await asyncio.sleep(0.1)

    def check_deliveries(self) -> None:
        """D: check that each delivery has its outcome by its deadline."""
        # Records wait for the metadata of their topic, and then for their delivery.
        latest = self.sim.loop.time() - max(self.delivery_s, MAX_BLOCK_S) - SLACK_S
        late = [each for each in self.sent if each.at < latest and not each.delivery.done()]
        if late:
            raise BrokenInvariantError(f"D: no outcome in time: {late[0]} of {self.name}")
        self.sent = [each for each in self.sent if not each.delivery.done()]

    # -- pairs of calls

    async def pair(self, calls: list[Call] | None = None) -> None:
        """Make some calls beside each other, and cancel one of them perhaps."""
        calls = calls or []
        while len(calls) < self.rng.choice([1, 2, 2, 3]):
            calls.insert(0, self.rng.choice(self.calls()))
        self.last = ", ".join(each.name for each in calls)
        self.account.append(self.last)
        tasks: list[asyncio.Task[None]] = []
        cancelled: set[asyncio.Task[None]] = set()
        for call in calls:
            tasks.append(asyncio.create_task(self.guarded(call)))
            await self.wait_a_little()
            if self.rng.random() < 0.4:
                chosen = self.rng.choice(tasks)
                if not chosen.done():
                    cancelled.add(chosen)
                    chosen.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()
            elif task not in cancelled:
                raise BrokenInvariantError(f"K: a call was cancelled by itself: {self.last}")

    async def guarded(self, call: Call) -> None:
        """D and K: await a call, which must end in time and may raise errors of the library."""
        began = self.sim.loop.time()
        try:
            await call.make()
        except KafkaError:
            pass
        except Exception as error:
            raise BrokenInvariantError(f"K: {call.name} raised {error!r}: {self.last}") from error
        took = self.sim.loop.time() - began
        if took > call.limit_s + SLACK_S:
            raise BrokenInvariantError(
                f"D: {call.name} took {took:.3f} s. The limit is {call.limit_s} s: {self.last}"
            )

    async def wait_a_little(self) -> None:
        """Wait for some iterations of the loop, or for some time."""
        kind = self.rng.random()
        if kind < 0.5:
            for _ in range(self.rng.randrange(10)):
                await asyncio.sleep(0)
        elif kind < 0.9:
            await asyncio.sleep(self.rng.uniform(0.0, 0.05))
        else:
            await asyncio.sleep(self.rng.uniform(0.0, 2.0))

    def calls(self) -> list[Call]:
        """Return the calls to choose from."""
        producer, outcome_s = self.producer, max(self.delivery_s, MAX_BLOCK_S)
        topic, number = self.destination()
        return [
            Call("send", self.send, 0.0),
            Call("send", self.send, 0.0),
            Call("send_many", self.send_many, 0.0),
            Call("send_many", self.send_many, 0.0),
            # Its items wait for room, and the last ones for their outcomes.
            Call("send_all", self.send_all, 4 * outcome_s),
            Call("send_and_wait", self.send_and_wait, outcome_s),
            Call("await a delivery", self.await_delivery, outcome_s),
            Call("gather", self.gather, outcome_s),
            Call("flush", producer.flush, outcome_s),
            Call("flush alone", self.flush_alone, outcome_s),
            Call("drain()", self.fill_and_drain, math.inf),
            Call("drain(topic)", partial(producer.drain, topic), outcome_s),
            Call("drain(topic, partition)", partial(producer.drain, topic, number), outcome_s),
            Call("prepare", partial(producer.prepare, topic, CALL_S), CALL_S),
            Call("partitions_for", partial(producer.partitions_for, topic, CALL_S), CALL_S),
            Call("start again", producer.start, 60.0),
            Call("look", self.look, 0.0),
        ]

    def destination(self) -> tuple[str, int]:
        """Return a partition, which may not exist (yet)."""
        topic = self.rng.choice([*TOPICS, *TOPICS, *TOPICS, LATE])
        beyond = self.rng.random() < 0.1
        count = self.workload.cluster.topics.get(topic, LATE_PARTITIONS)
        return topic, count if beyond else self.rng.randrange(count)

    # -- the calls

    def payload(self, topic: str, partition: int, number: int | None = None) -> tuple[Payload, Any]:
        """Return a new payload and the record that carries it."""
        number = self.number if number is None else number
        payload = self.ledger.payload(number, topic, partition)
        value = pack(payload, self.rng.choice([60, 100, 100, 1500]))
        return payload, ProducerRecord(topic, value, partition=partition)

    def note(self, payload: Payload, delivery: Delivery) -> None:
        """Note a record that was accepted; its outcome goes to the ledger."""
        self.sent.append(Sent(payload, delivery, self.sim.loop.time()))
        delivery.add_done_callback(partial(self.workload.end, payload))

    def send_to(self, topic: str, partition: int, by_key: bool = False) -> None:
        payload, record = self.payload(topic, partition)
        key, number = (b"%d" % partition, None) if by_key else (None, partition)
        try:
            delivery = self.producer.send(topic, record.value, key, number)
        except KafkaError as error:
            self.workload.refuse(payload, error)
            raise
        self.note(payload, delivery)

    async def send(self) -> None:
        topic, partition = self.destination()
        for _ in range(self.rng.choice([1, 3, 30])):
            self.send_to(topic, partition, by_key=self.rng.random() < 0.3)

    async def send_many(self) -> None:
        topic, _ = self.destination()
        made = [
            self.payload(topic, self.destination_of(topic))
            for _ in range(self.rng.choice([1, 5, 40]))
        ]
        try:
            deliveries = self.producer.send_many(topic, [record for _, record in made])
        except KafkaError as error:
            for payload, _ in made:
                self.workload.refuse(payload, error)
            raise
        for (payload, _), delivery in zip(made, deliveries, strict=True):
            self.note(payload, delivery)

    def destination_of(self, topic: str) -> int:
        return self.rng.randrange(self.workload.cluster.topics.get(topic, LATE_PARTITIONS))

    async def send_all(self) -> None:
        """Send all records of an iterable. Records of a call that fails have no known outcome."""
        topic, number = self.destination()[0], self.workload.next_number()
        drawn: list[Payload] = []
        count = self.rng.choice([1, 10, 100])

        def draw() -> Iterator[Any]:
            for _ in range(count):
                payload, record = self.payload(topic, self.destination_of(topic), number)
                drawn.append(payload)
                yield record

        try:
            acknowledged = await self.producer.send_all(topic, draw())
        except BaseException as error:
            for payload in drawn:
                self.ledger.fail(payload, error)
            raise
        if acknowledged != count or len(drawn) != count:
            raise BrokenInvariantError(f"A: send_all sent {acknowledged} records of {count}.")
        for payload in drawn:
            self.ledger.acknowledge(payload, -1)

    async def send_and_wait(self) -> None:
        topic, partition = self.destination()
        payload, record = self.payload(topic, partition)
        try:
            metadata = await self.producer.send_and_wait(topic, record.value, partition=partition)
        except BaseException as error:
            self.ledger.fail(payload, error)
            raise
        self.ledger.acknowledge(payload, metadata.offset)

    async def await_delivery(self) -> None:
        if self.sent:
            await self.rng.choice(self.sent).delivery

    async def gather(self) -> None:
        chosen = self.rng.sample(self.sent, min(len(self.sent), self.rng.choice([1, 5, 50])))
        together = self.rng.random() < 0.5
        await self.producer.gather([each.delivery for each in chosen], together)

    async def flush_alone(self) -> None:
        """Flush, and check the outcomes of what was sent before."""
        before = list(self.sent)
        await self.producer.flush()
        if any(not each.delivery.done() for each in before):
            raise BrokenInvariantError("D: a record has no outcome after flush().")

    async def fill_and_drain(self) -> None:
        """Send as long as there is room, as a program with backpressure does."""
        topic, partition = self.destination()
        for _ in range(self.rng.choice([5, 60])):
            self.send_to(topic, partition)
            if self.producer.full:
                longest = max(self.delivery_s, MAX_BLOCK_S)
                await self.workload.bounded("drain", longest, self.producer.drain())

    async def look(self) -> None:
        self.producer.health()
        self.producer.metrics()
        self.workload.check_memory()


class CallingWorkload(seeded.Workload):
    """One run."""

    def choose(self) -> None:
        rng = self.sim.rng
        self.ledger = Ledger(exactly_once=rng.random() < 0.7)
        self.pairs: list[str] = []
        self.refused: set[Payload] = set()
        """Records that may be in no log."""
        self._number = 0

    def next_number(self) -> int:
        """Return a number for a sequence of records whose order is preserved."""
        self._number += 1
        return self._number

    def refuse(self, payload: Payload, error: BaseException) -> None:
        """Record that a record may be in no log."""
        self.refused.add(payload)
        self.ledger.fail(payload, error)

    def end(self, payload: Payload, delivery: Delivery) -> None:
        """Record the outcome of a record."""
        error = delivery.exception()
        if error is None:
            self.ledger.acknowledge(payload, delivery.offset)
        elif "was not written" in str(error):
            self.refuse(payload, error)
        else:
            self.ledger.fail(payload, error)

    async def with_clients(self) -> None:
        programs = [Program(self, f"producer-{number}") for number in range(PROGRAMS)]
        async with asyncio.TaskGroup() as group:
            for program in programs:
                group.create_task(program.run())
            await self.break_things()
            self.heal()
            if LATE not in self.cluster.topics:
                self.cluster.create_topic(LATE, LATE_PARTITIONS)
        self.pairs = [line for program in programs for line in program.account]

    def kinds(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [*super().kinds(), self.add_partitions, self.create_late_topic]

    async def add_partitions(self) -> None:
        topic = self.sim.rng.choice(list(TOPICS))
        count = self.cluster.topics[topic]
        if count < MOST_PARTITIONS:
            self.cluster.add_partitions(topic, count + 1)

    async def create_late_topic(self) -> None:
        if LATE not in self.cluster.topics:
            self.cluster.create_topic(LATE, LATE_PARTITIONS)

    def read_logs(self) -> None:
        for topic in self.cluster.topics:
            self.ledger.consume_all(self.cluster.records(topic))

    def check(self) -> None:
        self.ledger.check()
        logs = self.ledger.read.values()
        wrong = [each for log in logs for each in log.values() if each in self.refused]
        if wrong:
            raise BrokenInvariantError(f"A: refused and written: {len(wrong)} {wrong[:3]}")

    def summary(self) -> str:
        return f"{self.ledger.summary()}; {self.pairs}"


def run(seed: int) -> seeded.Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    with logging_errors() as logged:
        outcome = seeded.run(seed, CallingWorkload)
        gc.collect()
    logged.check(seed)
    return outcome


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
