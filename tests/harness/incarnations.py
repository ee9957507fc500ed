"""A seeded workload in which logs are removed: topics are recreated and the cluster is replaced.

Two producers, with or without idempotence, write while metadata is outdated, responses are lost,
topics are recreated with fewer or more partitions, and the cluster is replaced by an empty one that
assigns the same producer ids to other producers. Each log is read at the moment when it is removed.
A record that it contained counts as delivered. The invariants, with the letters of `ledger`:

    A  every acknowledged record is in a log, at the acknowledged offset; with idempotence, no
       record is in one log twice
    B  with idempotence, the records of one producer and partition are in order in each log;
       requests that identify topics by name (Produce before version 13) cannot ensure that, because
       a recreated topic accepts any first sequence
    C  every record is intact, and in the topic and partition that it was meant for
    D  no call lasts longer than its deadline
    E  after the faults end, every send gets its outcome, and later records are acknowledged

``python tests/harness/incarnations.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import seeded
from driver import partitions_of
from ledger import BrokenInvariantError, Ledger, Payload
from seeded import RECOVERY_S, TOPICS, Outcome, choice_of

from aiokclient import Producer
from aiokclient.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    UnknownProducerIdError,
)
from aiokclient.protocol import ApiKey
from aiokclient.record.batch import RecordBatch

MAX_BLOCK_MS = 20_000
MOST_WIPES = 2


def run(seed: int) -> Outcome:
    """Run one seed. If the run fails, raise its error, with a note that contains the seed."""
    return seeded.run(seed, Workload)


class Logs:
    """The records that are or were in the logs of the topics."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._gone: list[Ledger] = []
        self.in_order = True

    def keep(self, records: list[Any]) -> None:
        """Store the records of a topic that is about to be removed."""
        log = Ledger(exactly_once=self._ledger.exactly_once, sent=self._ledger.sent)
        log.consume_all(records)
        self._gone.append(log)

    def check(self) -> None:
        """Raise BrokenInvariantError if A, B, or C does not hold."""
        where: dict[Payload, set[int]] = {}
        for log in self._gone:
            log.check(settled=False, in_order=self.in_order)
            for records in log.read.values():
                for offset, payload in records.items():
                    where.setdefault(payload, set()).add(offset)
        acknowledged = self._ledger.acknowledged
        wrong = [
            (payload, offset, where.get(payload))
            for payload, offset in acknowledged.items()
            if payload not in where or (offset >= 0 and offset not in where[payload])
        ]
        if wrong:
            text = f"A: acknowledged and in no log there: {len(wrong)}, {wrong[:5]}"
            raise BrokenInvariantError(text)


class Workload(seeded.Workload):
    """One run of two producers on a cluster whose topics and logs are removed."""

    def __init__(self) -> None:
        super().__init__()
        self.wipes = 0
        self.changing: set[str] = set()
        self.others = 0

    def choose(self) -> None:
        choose = self.sim.rng.choice
        self.idempotent = choice_of(choose, True, True, False)
        self.produce_version = choice_of(choose, 13, 13, 12, 9)
        self.ledger = Ledger(exactly_once=self.idempotent)
        self.logs = Logs(self.ledger)
        self.logs.in_order = self.produce_version >= 13
        self.brokers = choice_of(choose, 1, 3, 3)

    def read_logs(self) -> None:
        for topic in self.cluster.topics:
            self.logs.keep(self.cluster.records(topic))

    def check(self) -> None:
        self.logs.check()

    def summary(self) -> str:
        failures = Counter(error.split("(")[0] for error in self.ledger.failed.values())
        return f"{super().summary()} {self.idempotent} {dict(failures)}"

    def limit_versions(self) -> None:
        self.cluster.limit_versions({ApiKey.PRODUCE: (3, self.produce_version)})

    async def with_clients(self) -> None:
        self.limit_versions()
        async with AsyncExitStack() as stack:
            producers = [await stack.enter_async_context(self.producer(n)) for n in range(2)]
            writers = self.writers(producers)
            async with asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(writer.run())
                await self.break_things()
                for writer in writers:
                    writer.stopped = True
            self.heal()
            await self.flush(producers)
            await self.write_once_more(producers)

    async def write_once_more(self, producers: list[Producer[Any, Any]]) -> None:
        failed = len(self.ledger.failed)
        for number, producer in enumerate(producers):
            # After this update of the metadata, the producer knows which partitions exist now.
            await producer._cluster.updater.refresh(list(TOPICS), timeout=RECOVERY_S, at_once=True)
            await self.writer(producer, number).run(2 * len(partitions_of(TOPICS)))
            await self.flush([producer])
        if len(self.ledger.failed) > failed:
            last = list(self.ledger.failed.items())[failed:]
            raise BrokenInvariantError(
                f"E: These sends were not acknowledged after the faults: {last[:5]}"
            )

    def producer_options(self) -> dict[str, Any]:
        choose = self.sim.rng.choice
        return {
            **self.options(),
            "enable_idempotence": self.idempotent,
            "linger_ms": choice_of(choose, 0, 5, 100),
            "batch_size": choice_of(choose, 250, 1_000, 16_384),
            "max_block_ms": MAX_BLOCK_MS,
        }

    # -- the faults

    def kinds(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        kinds = [
            self.cut_connections,
            self.bad_weather,
            self.partition_network,
            self.stop_broker,
            self.pause_broker,
            self.move_leaders,
            self.lose_answers,
            self.lose_answers,
            self.slow_answers,
            self.stale_metadata,
            self.stale_metadata,
            self.recreate_topic,
            self.recreate_topic,
            self.wipe_cluster,
        ]
        return [*kinds, self.refuse_sequences] if self.idempotent else kinds

    def heal(self) -> None:
        super().heal()
        self.limit_versions()
        for topic, partitions in TOPICS.items():
            if topic not in self.cluster.topics:
                self.cluster.create_topic(topic, partitions)
            self.cluster.add_partitions(topic, partitions)

    def lost_api(self) -> ApiKey:
        return ApiKey.PRODUCE

    async def stale_metadata(self) -> None:
        """Let one broker, or all but one, return outdated metadata while the cluster changes."""
        brokers = list(self.cluster.brokers)
        self.sim.rng.shuffle(brokers)
        count = self.sim.rng.choice([1, 1, max(1, len(brokers) - 1)])
        with contextlib.ExitStack() as stack:
            for broker in brokers[:count]:
                stack.enter_context(self.cluster.hold_metadata(broker))
            await self.a_while(5)

    async def refuse_sequences(self) -> None:
        errors = [OutOfOrderSequenceError, UnknownProducerIdError, InvalidProducerEpochError]
        error, times = self.sim.rng.choice(errors), self.sim.rng.randint(1, 4)
        with self.cluster.fail(ApiKey.PRODUCE, error, times=times, where=self.is_new):
            await self.a_while(2)

    def is_new(self, request: Any) -> bool:
        """Return whether no batch of a produce request is already in the log.

        A broker refuses only new batches by their sequences: it acknowledges those that are in the
        log.
        """
        state = self.cluster._state
        for data in request.topic_data:
            topic = state.topics_by_id.get(data.topic_id) or state.topics.get(data.name)
            for part in data.partition_data:
                found = None if topic is None else topic.find_partition(part.index)
                batch = RecordBatch(part.records)
                if found is not None and found.log.producers.find_duplicate(batch) is not None:
                    return False
        return True

    async def recreate_topic(self) -> None:
        topic = self.sim.rng.choice(list(TOPICS))
        if topic in self.changing or topic not in self.cluster.topics:
            return
        self.changing.add(topic)
        self.logs.keep(self.cluster.records(topic))
        self.cluster.delete_topic(topic)
        if self.sim.rng.random() < 0.5:
            await self.a_while(2)
        if topic not in self.cluster.topics:
            self.cluster.create_topic(topic, self.sim.rng.randint(1, 4))
        self.changing.discard(topic)

    async def wipe_cluster(self) -> None:
        if self.wipes == MOST_WIPES:
            return
        self.wipes += 1
        for topic in self.cluster.topics:
            self.logs.keep(self.cluster.records(topic))
        topics = TOPICS if self.sim.rng.random() < 0.7 else {}
        self.cluster.wipe(topics, same_id=self.sim.rng.random() < 0.5)
        if not topics:
            await self.a_while(2)
        for topic, partitions in TOPICS.items():
            if topic not in self.cluster.topics:
                self.cluster.create_topic(topic, partitions)
        # The new cluster begins again with the first producer ids, which the former one assigned,
        # too.
        self.others += 2
        async with AsyncExitStack() as stack:
            for number in (8 + self.others, 9 + self.others):
                producer = await stack.enter_async_context(self.producer(number))
                await self.writer(producer, number, pause=0.05).run(60)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
