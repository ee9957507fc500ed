"""Seeded programs of consumers whose subscriptions change, under all three protocols.

A seed determines the protocol, the members, their public calls (in pairs with and without a pause,
some of them cancelled at an await), and the faults: lost answers, refused requests, connections
that are cut, a moved coordinator, slow commits. After that nothing changes any more, and:

- the partitions that the members' subscriptions name are owned once, by the coordinator's view and
  by the members', and what is written into them is read;
- no record was delivered of a topic that its consumer had not subscribed to or assigned by hand;
- no consumer has failed.

``python tests/harness/subscribing.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import contextlib
import re
import sys
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from group_world import PROTOCOLS, member
from ledger import BrokenInvariantError
from owned import check_owned_and_read
from world import World

from aiokclient import Consumer, State, TopicPartition
from aiokclient.errors import (
    CommitFailedError,
    FencedMemberEpochError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokclient.protocol import ApiKey
from aiokclient.testing import Simulation
from aiokclient.testing.broker.faults import When

TOPICS = {"a": 3, "b": 2, "c": 1}
BY_HAND = "hand"
SUBSCRIPTIONS: list[Any] = [["a"], ["b"], ["a", "b"], ["b", "c"], ["a", "b", "c"]]
PATTERNS = [re.compile("[ab]"), re.compile("[bc]"), re.compile("a|c")]
STEPS = 14
JOINING = {
    "eager": (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT),
    "kip848": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT),
}
JOINING["cooperative"] = JOINING["eager"]
REFUSALS: dict[str, list[type[KafkaError]]] = {
    "eager": [
        NotCoordinatorError,
        UnknownMemberIdError,
        IllegalGenerationError,
        RebalanceInProgressError,
    ],
    "kip848": [NotCoordinatorError, UnknownMemberIdError, FencedMemberEpochError],
}
REFUSALS["cooperative"] = REFUSALS["eager"]


class Outcome(NamedTuple):
    """The outcome of a run, which is equal for equal seeds."""

    seed: int
    trace: str
    calls: list[str]
    virtual_s: float


class Listener:
    """A listener that takes its time."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    async def on_revoked(self, tps: Any) -> None:
        await asyncio.sleep(self._delay_s)

    async def on_assigned(self, tps: Any) -> None:
        await asyncio.sleep(self._delay_s / 2)


class Program:
    """One member: the task that reads, and the calls of its program."""

    def __init__(self, run: "Run", number: int) -> None:
        self.run, self.number = run, number
        self.rng = run.sim.rng
        self.instance = f"i{number}" if self.rng.random() < 0.4 else None
        self.manual = self.rng.random() < 0.3
        self.work_s = self.rng.choice([0.0, 0.0, 0.01, 0.3])
        self.allowed: set[str] = set()
        self.reader: asyncio.Task[None] | None = None
        self.consumer = self.make()

    def make(self) -> Consumer[Any, Any]:
        options = dict(PROTOCOLS[self.run.protocol])
        if self.run.protocol != "kip848":
            options |= {"session_timeout_ms": 10_000}
        consumer = member(
            self.run.world,
            None,
            f"m{self.number}",
            client_id=f"m{self.number}",
            group_instance_id=self.instance,
            enable_auto_commit=not self.manual,
            auto_commit_interval_ms=200,
            request_timeout_ms=2000,
            metadata_max_age_ms=2000,
            **options,
        )
        consumer.unsubscribe()
        self.consumer = consumer
        self.subscribe()
        return consumer

    async def start(self) -> None:
        await self.consumer.start(wait=False)
        self.reader = asyncio.create_task(self.read(self.consumer))

    async def read(self, consumer: Consumer[Any, Any]) -> None:
        while True:
            try:
                # A task that is cancelled between its polls may lose nothing.
                records = await consumer.poll(timeout=0.1, max_records=5)
            except IllegalStateError:
                return
            except KafkaError as error:
                self.run.note(self, f"poll raised {type(error).__name__}")
                await asyncio.sleep(0.05)
                continue
            wrong = {record.topic for record in records} - self.allowed
            if wrong:
                raise BrokenInvariantError(f"m{self.number}: records of {wrong} were delivered")
            if self.work_s and records:
                await asyncio.sleep(self.work_s)

    # -- the calls

    def subscribe(self) -> None:
        choose = self.rng.choice
        topics = choose(PATTERNS) if self.rng.random() < 0.3 else choose(SUBSCRIPTIONS)
        listener = choose([None, Listener(0.0), Listener(0.2)])
        self.consumer.subscribe(topics, listener)
        names = TOPICS if isinstance(topics, re.Pattern) else topics
        self.allowed = {
            topic
            for topic in names
            if not isinstance(topics, re.Pattern) or topics.fullmatch(topic)
        } | {BY_HAND}

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()
        self.allowed = {BY_HAND}

    def assign(self) -> None:
        self.consumer.assign([TopicPartition(BY_HAND, 0)])

    def pause(self) -> None:
        self.consumer.pause(self.consumer.assignment())

    def resume(self) -> None:
        self.consumer.resume(self.consumer.assignment())

    def seek(self) -> None:
        for tp in sorted(self.consumer.assignment()):
            self.consumer.seek(tp, 0)

    async def commit(self) -> None:
        with contextlib.suppress(CommitFailedError):
            await self.consumer.commit(timeout=5)

    async def position(self) -> None:
        for tp in sorted(self.consumer.assignment()):
            with contextlib.suppress(IllegalStateError):
                await self.consumer.position(tp, timeout=2)

    async def restart(self) -> None:
        if self.reader is not None:
            self.reader.cancel()
            await asyncio.wait([self.reader])
        await self.consumer.close(self.rng.choice([0.0, 1.0, 5.0]))

    async def start_again(self) -> None:
        await self.consumer.close(2)
        if self.instance is not None and self.run.protocol == "kip848":
            # The coordinator refuses the instance id if it has not heard of the close.
            self.instance = f"{self.instance}-"
        self.make()
        await self.start()

    async def call(self) -> None:
        """Make a public call, perhaps another one at once, perhaps cancelled at an await."""
        kinds: list[Callable[[], Any]] = [
            self.subscribe,
            self.subscribe,
            self.subscribe,
            self.unsubscribe,
            self.assign,
            self.pause,
            self.resume,
            self.seek,
            self.commit,
            self.position,
            self.restart,
        ]
        for _ in range(self.rng.choice([1, 2, 2, 3])):
            kind = self.rng.choice(kinds)
            self.run.note(self, kind.__name__)
            result = kind()
            if asyncio.iscoroutine(result):
                await self.cancelled_perhaps(result)
            if kind == self.restart:
                await self.start_again()
            if self.rng.random() < 0.3:
                await asyncio.sleep(self.rng.choice([0.0, 0.001, 0.02, 0.3]))

    async def cancelled_perhaps(self, call: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(call)
        if self.rng.random() < 0.4:
            await asyncio.sleep(self.rng.choice([0.0, 0.0005, 0.01, 0.2]))
            task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            if not isinstance(error, KafkaError):
                raise error
            self.run.note(self, f"raised {type(error).__name__}")


class Run:
    """One run of a seed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.protocol = ""

    def note(self, program: Program, what: str) -> None:
        self.calls.append(f"{self.sim.loop.time():.3f} m{program.number} {what}")

    async def main(self, sim: Simulation) -> Outcome:
        self.sim = sim
        rng = sim.rng
        self.protocol = rng.choice(list(PROTOCOLS))
        topics = {**TOPICS, BY_HAND: 1}
        configs = {"group.initial.rebalance.delay.ms": rng.choice([0, 0, 1000])}
        async with sim.cluster(brokers=2, topics=topics, configs=configs) as cluster:
            self.world = World(sim, cluster)
            for topic, count in topics.items():
                for partition in range(count):
                    cluster.produce(topic, [b"%d" % n for n in range(50)], partition)
            self.programs = [Program(self, number) for number in range(rng.choice([1, 2, 3]))]
            for program in self.programs:
                await program.start()
            try:
                await self.change_things()
                await self.check()
            finally:
                for program in self.programs:
                    if program.reader is not None:
                        program.reader.cancel()
                        await asyncio.wait([program.reader])
                    await program.consumer.close(2)
        return Outcome(sim.seed, sim.trace, self.calls, round(sim.loop.time(), 6))

    async def change_things(self) -> None:
        rng = self.sim.rng
        for _ in range(STEPS):
            if rng.random() < 0.35:
                self.break_something()
            await rng.choice(self.programs).call()
            await asyncio.sleep(rng.choice([0.0, 0.0, 0.005, 0.05, 0.5, 3.0]))
        await asyncio.sleep(1)
        self.world.cluster.reset()

    def break_something(self) -> None:
        rng, cluster = self.sim.rng, self.world.cluster
        api = rng.choice(JOINING[self.protocol])
        fault = rng.randrange(5)
        choices: list[When] = ["before", "after"]
        when, times = rng.choice(choices), rng.choice([1, 1, 2])
        if fault == 0:
            cluster.drop(api, when=when, times=times)
        elif fault == 1:
            cluster.delay(api, rng.choice([0.05, 0.5, 3.0]), when=when, times=times)
        elif fault == 2 and api is not ApiKey.OFFSET_COMMIT:
            cluster.fail(api, rng.choice(REFUSALS[self.protocol]), times=times)
        elif fault == 3:
            self.sim.network.cut(None)
        else:
            cluster.move_coordinator("g")

    async def check(self) -> None:
        for program in self.programs:
            reader = program.reader
            assert reader is not None
            if reader.done() and not reader.cancelled():
                reader.result()
            reader.cancel()
            await asyncio.wait([reader])
            if program.consumer.state is State.FAILED:
                raise BrokenInvariantError(f"m{program.number} has failed")
            # What was assigned by hand is not the group's.
            program.consumer.assign([])
        consumers = [program.consumer for program in self.programs]
        # Longer than a session, and shorter than the rebalance timeout, which hides stalls.
        await check_owned_and_read(self.world, consumers, within_s=55)


def run(seed: int) -> Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    this = Run()
    try:
        return Simulation(seed, limit_s=3600).run(this.main)
    except BaseException as error:
        error.add_note(f"protocol {this.protocol}; " + "; ".join(this.calls[-80:]))
        raise


if __name__ == "__main__":
    for each in run(int(sys.argv[1])):
        sys.stdout.write(f"{each}\n")
