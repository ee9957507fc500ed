"""A workload with seeded faults in a simulation: two producers, two consumers, three brokers.

A seed determines the options of the clients, the faults, and their times. Faults occur for twelve
virtual seconds. After that, each send must get its outcome, and what was acknowledged must be
read. The invariants, with their letters in tests/faults.md:

    A B C   checked by the ledger, from the records themselves
    D       no call lasts longer than its deadline
    E       after the faults, everything is delivered and read within RECOVERY_S
    H       closing takes a limited time and leaves no task and no connection
    I       no client holds more bytes than its limit

``python tests/harness/seeded.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from driver import Writer, partitions_of
from ledger import BrokenInvariantError, Ledger

from aiokclient import Consumer, Producer, TopicPartition
from aiokclient.errors import (
    CoordinatorLoadInProgressError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import EmbeddedCluster, Simulation
from aiokclient.testing.simulation.network import Weather

TOPICS = {"a": 3, "b": 2}
FAULTS_S = 12.0
RECOVERY_S = 10.0
SLACK_S = 0.25
LARGEST_BATCH = 20_000
REQUEST_TIMEOUT_MS, DELIVERY_TIMEOUT_MS = 2_000, 60_000
T = TypeVar("T")


class Outcome(NamedTuple):
    """The outcome of a run, which is equal for equal seeds."""

    seed: int
    trace: str
    account: str
    virtual_s: float
    connections: int
    faults: list[str]


def run(seed: int, workload: type["Workload"] | None = None) -> Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    chosen = Workload if workload is None else workload
    return Simulation(seed, limit_s=3600).run(chosen().main)


class Workload:
    """One run. Its attributes are set as it proceeds."""

    sim: Simulation
    cluster: EmbeddedCluster
    brokers = 3

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.faults: list[str] = []
        self.limits: list[tuple[Any, str, int]] = []
        self.healed = False

    async def main(self, sim: Simulation) -> Outcome:
        self.sim = sim
        self.choose()
        async with sim.cluster(brokers=self.brokers, topics=TOPICS) as self.cluster:
            await self.with_clients()
            await asyncio.sleep(1)
            self.check_leaks()
            self.read_logs()
        self.check()
        now, made = sim.loop.time(), sim.network.connections_made
        return Outcome(sim.seed, sim.trace, self.summary(), round(now, 6), made, self.faults)

    def choose(self) -> None:
        """Choose what varies between seeds, before the cluster starts."""

    def read_logs(self) -> None:
        """Read the logs of the cluster before it is closed."""

    def check(self) -> None:
        """Raise BrokenInvariantError if A, B, or C does not hold."""
        self.ledger.check()

    def summary(self) -> str:
        return self.ledger.summary()

    async def with_clients(self) -> None:
        async with AsyncExitStack() as stack:
            producers = [await stack.enter_async_context(self.producer(n)) for n in range(2)]
            consumers = [await stack.enter_async_context(self.consumer(n)) for n in range(2)]
            writers = self.writers(producers)
            async with asyncio.TaskGroup() as group:
                for consumer in consumers:
                    group.create_task(self.read(consumer))
                for writer in writers:
                    group.create_task(writer.run())
                await self.break_things()
                for writer in writers:
                    writer.stopped = True
                self.heal()
                await self.flush(producers)
                await self.recovered()

    def writers(self, producers: Sequence[Producer[Any, Any]]) -> list[Writer]:
        """Return a writer for each producer."""
        pause = self.sim.rng.choice([0.03, 0.1])
        return [self.writer(producer, number, pause) for number, producer in enumerate(producers)]

    def writer(self, producer: Producer[Any, Any], number: int, pause: float = 0.0) -> Writer:
        """Return a writer to all partitions."""
        return Writer(
            producer, self.ledger, partitions_of(TOPICS), number=number, pause=pause, size=80
        )

    async def flush(self, producers: Sequence[Producer[Any, Any]]) -> None:
        """E: wait until each send has its outcome, at most RECOVERY_S after the faults."""
        for producer in producers:
            await self.bounded("flush", RECOVERY_S, producer.flush())

    # -- the clients

    def options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.cluster.bootstrap_servers,
            "connector": self.sim.connector,
            "clock": self.sim.clock,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metadata_max_age_ms": self.sim.rng.choice([5_000, 300_000]),
        }

    def producer_options(self) -> dict[str, Any]:
        choose = self.sim.rng.choice
        return {
            "buffer_memory": choice_of(choose, 20_000, 1 << 20),
            **self.options(),
            "linger_ms": choice_of(choose, 0, 5, 100),
            "batch_size": choice_of(choose, 250, 1_000, 16_384),
            "compression_type": choice_of(choose, "none", "none", "gzip", "lz4", "zstd"),
        }

    @asynccontextmanager
    async def producer(self, number: int) -> AsyncIterator[Producer[Any, Any]]:
        options = {"buffer_memory": 32 << 20, **self.producer_options()}
        client_id = f"producer-{number}"
        producer = Producer[Any, Any](
            **options, client_id=client_id, delivery_timeout_ms=DELIVERY_TIMEOUT_MS
        )
        await self.bounded("start", 60, producer.start())
        # The records of partitions that cannot be sent may exceed the buffer by up to half of its
        # size, so that they do not block other partitions.
        most = options["buffer_memory"] * 3 // 2
        self.limits.append((producer, "producer.buffer.bytes", most))
        self.limits.append((producer, "producer.overflow.bytes", most))
        try:
            yield producer
        finally:
            await self.bounded("close", 5, producer.close(5))

    @asynccontextmanager
    async def consumer(self, number: int) -> AsyncIterator[Consumer[Any, Any]]:
        choose = self.sim.rng.choice
        fetch_max_bytes = choice_of(choose, 2_000, 1 << 20)
        consumer = Consumer[Any, Any](
            **self.options(),
            client_id=f"consumer-{number}",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=choice_of(choose, 100, 500),
            fetch_max_bytes=fetch_max_bytes,
            max_partition_fetch_bytes=choice_of(choose, 1_000, 1 << 20),
        )
        consumer.assign([TopicPartition(*each) for each in partitions_of(TOPICS)[number::2]])
        await self.bounded("start", 60, consumer.start())
        # The buffer may hold two responses of each broker. The first batch of a response may exceed
        # `fetch_max_bytes`.
        limit = 2 * len(self.cluster.brokers) * (fetch_max_bytes + LARGEST_BATCH)
        self.limits.append((consumer, "consumer.buffer.bytes", limit))
        try:
            yield consumer
        finally:
            await self.bounded("close", 5, consumer.close(5))

    async def read(self, consumer: Consumer[Any, Any]) -> None:
        """Poll until the faults are over and every acknowledged record has been read."""
        while not (self.healed and self.ledger.settled and not self.ledger.missing):
            self.check_memory()
            self.ledger.consume_all(await self.bounded("poll", 1, consumer.poll(timeout=1.0)))

    # -- the invariants

    async def bounded(self, what: str, limit_s: float, call: Awaitable[T]) -> T:
        """D: check that the call ends by its deadline, and return its result."""
        began = self.sim.loop.time()
        result = await call
        took = self.sim.loop.time() - began
        if took > limit_s + SLACK_S:
            raise BrokenInvariantError(f"D: {what} took {took:.3f} s. The limit is {limit_s} s.")
        return result

    def check_memory(self) -> None:
        """I: check that the bytes that clients hold are within their limits."""
        for client, name, limit in self.limits:
            # All values of `metrics()`, so often, were half of the time of a run.
            (held,) = (each.value for each in client.metric_values(name))
            if held > limit:
                raise BrokenInvariantError(f"I: {name} is {held}. The limit is {limit}.")

    async def recovered(self) -> None:
        """E: wait until everything is settled and read, for at most RECOVERY_S.

        The readers end when this is so, and need not be stopped.
        """
        deadline = self.sim.loop.time() + RECOVERY_S
        while self.ledger.missing or not self.ledger.settled:
            if self.sim.loop.time() > deadline:
                raise BrokenInvariantError(
                    f"E: Records are unread {RECOVERY_S} s after the faults: {self.account()}"
                )
            await asyncio.sleep(0.5)

    def account(self) -> str:
        missing = self.ledger.missing
        return f"{self.ledger.summary()}; {len(missing)} not read yet: {missing[:5]}"

    def check_leaks(self) -> None:
        """H: check that closed clients have left no task and no connection."""
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if tasks or self.sim.network.connections:
            open_ = [f"{c.client}->{c.server}" for c in self.sim.network.connections.values()]
            raise BrokenInvariantError(f"H: Tasks or connections are left: {tasks} {open_}")

    # -- the faults

    async def break_things(self) -> None:
        """Start random faults at random times. A fault may begin before earlier ones have ended."""
        rng = self.sim.rng
        kinds = self.kinds()
        end = self.sim.loop.time() + FAULTS_S
        async with asyncio.TaskGroup() as group:
            while self.sim.loop.time() < end:
                kind = rng.choice(kinds)
                self.faults.append(kind.__name__)
                group.create_task(kind())
                await asyncio.sleep(rng.uniform(0.05, 2))

    def kinds(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Return the faults to choose from."""
        return [
            self.cut_connections,
            self.bad_weather,
            self.partition_network,
            self.stop_broker,
            self.pause_broker,
            self.move_leaders,
            self.refuse_requests,
            self.lose_answers,
            self.slow_answers,
            self.refuse_connections,
            self.jump_clock,
            self.evict_sessions,
        ]

    def heal(self) -> None:
        self.healed = True
        self.sim.network.weather = Weather()
        self.sim.network.heal()
        self.cluster.reset()

    def some_broker(self) -> int:
        return self.sim.rng.choice(self.cluster.brokers)

    def address_of(self, broker: int) -> str:
        host, port = self.cluster.address(broker)
        return f"{host}:{port}"

    async def a_while(self, longest: float) -> None:
        await asyncio.sleep(self.sim.rng.uniform(0.01, longest))

    async def cut_connections(self) -> None:
        address = self.sim.rng.choice([None, self.address_of(self.some_broker())])
        self.sim.network.cut(address)

    async def bad_weather(self) -> None:
        rng = self.sim.rng
        self.sim.network.weather = Weather(
            latency_s=rng.choice([(0.0002, 0.002), (0.01, 0.2), (0.0, 1.0)]),
            loss=rng.choice([0.0, 0.01, 0.1]),
            slicing=rng.choice([0.0, 0.2]),
            refusal=rng.choice([0.0, 0.3]),
        )
        await self.a_while(5)
        self.sim.network.weather = Weather()

    async def partition_network(self) -> None:
        self.sim.network.part({"client"}, {self.address_of(self.some_broker())})
        await self.a_while(5)
        self.sim.network.heal()

    async def stop_broker(self) -> None:
        broker = self.some_broker()
        self.cluster.stop(broker, failover_after=self.sim.rng.choice([0.0, 0.0, 2.0]))
        await self.a_while(5)
        self.cluster.start(broker)

    async def pause_broker(self) -> None:
        broker = self.some_broker()
        self.cluster.pause(broker)
        await self.a_while(5)
        self.cluster.resume(broker)

    async def move_leaders(self) -> None:
        """Move leaders to in-sync replicas only, because an unclean election loses records."""
        for topic, partition in partitions_of(self.cluster.topics):
            # The topic may not exist, or a stopped broker may not have been noticed yet.
            with contextlib.suppress(ValueError):
                in_sync = self.cluster.isr(topic, partition)
                leader = self.cluster.leader(topic, partition)
                if others := [broker for broker in in_sync if broker != leader]:
                    self.cluster.move_leader(topic, partition, to=self.sim.rng.choice(others))
            await self.a_while(0.3)

    async def refuse_requests(self) -> None:
        api, errors = self.sim.rng.choice(REFUSALS)
        error = self.sim.rng.choice(errors)
        with self.cluster.fail(api, error, times=self.sim.rng.randint(1, 10)):
            await self.a_while(4)

    async def lose_answers(self) -> None:
        api, times = self.lost_api(), self.sim.rng.randint(1, 4)
        with self.cluster.drop(api, when="after", times=times):
            await self.a_while(4)

    def lost_api(self) -> ApiKey:
        """Choose the API whose responses are lost."""
        return self.sim.rng.choice([ApiKey.PRODUCE, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA])

    async def slow_answers(self) -> None:
        api = self.sim.rng.choice([ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA])
        with self.cluster.delay(api, self.sim.rng.uniform(0.1, 5), when="after", times=3):
            await self.a_while(4)

    async def refuse_connections(self) -> None:
        address = self.address_of(self.some_broker())
        self.sim.network.refuse(address)
        await self.a_while(5)
        self.sim.network.refuse(address, False)

    async def jump_clock(self) -> None:
        # The clock is not set far ahead, because brokers refuse records from the future.
        self.sim.clock.jump(self.sim.rng.choice([-86_400, -1_000, 1_000]))

    async def evict_sessions(self) -> None:
        self.cluster.evict_sessions()


REFUSALS: list[tuple[ApiKey, list[Any]]] = [
    (ApiKey.PRODUCE, [NotLeaderOrFollowerError, NotEnoughReplicasError, RequestTimedOutError]),
    (ApiKey.FETCH, [NotLeaderOrFollowerError, KafkaStorageError, UnknownTopicOrPartitionError]),
    (ApiKey.LIST_OFFSETS, [NotLeaderOrFollowerError]),
    (ApiKey.INIT_PRODUCER_ID, [CoordinatorLoadInProgressError]),
]


def choice_of(choose: Callable[[Any], T], *among: T) -> T:
    return choose(among)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
