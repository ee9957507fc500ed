"""A workload of transactions in which two tasks use each producer, and the level changes.

It is the workload of `transacting`, with its faults and invariants. In addition, a second task of
each producer makes public calls at random moments, beside the calls of the first task, and either
may be cancelled. The level of transaction.version changes at any step, also in a transaction.

``python tests/harness/pairing.py SEED`` runs one seed and prints the outcome.
"""

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import seeded
from ledger import BrokenInvariantError
from transacting import API_S, CLOSE_S, TPS, Attempt, Author, TransactingWorkload

from aiokclient import GroupMetadata, Producer, TopicPartition
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    ClosedError,
    IllegalStateError,
    InvalidConfigurationError,
)

ALLOWED = (
    AbortableError,
    ApplicationRecoverableError,
    InvalidConfigurationError,
    IllegalStateError,
    ClosedError,
)
"""The errors that a call beside another one may raise."""
OTHER = TopicPartition("in", 0)
CALL_S = 40.0
"""A limit for every call: a shielded commit takes at most `transaction_timeout_ms`, which is 20 s,
after the time for its records."""


class PairedAuthor(Author):
    """A producer whose calls are made by two tasks."""

    async def run(self) -> None:
        meddling = asyncio.create_task(self.meddle())
        await super().run()
        await meddling

    async def make_attempt(self) -> Attempt:
        await self.change_level()
        attempt = await super().make_attempt()
        await self.change_level()
        return attempt

    async def change_level(self) -> None:
        """Change the level of the cluster, or do nothing."""
        workload = self.workload
        assert isinstance(workload, PairedWorkload)
        if workload.levels and not self.stopped and self.rng.random() < 0.1:
            workload.cluster.set_transaction_version(self.rng.choice(workload.levels))

    async def handle(self, task: asyncio.Task[None], cancel: bool) -> None:
        """Handle errors as a program with another task does: a wrong state only ends the attempt.

        The last attempts, which must succeed, are made by one task.
        """
        while True:
            try:
                await super().handle(task, cancel)
            except IllegalStateError as error:
                self.note(error)
                task = asyncio.ensure_future(self.clear())
                continue
            return

    async def clear(self) -> None:
        """End the transaction that another task has left open, if it has."""
        engine = self.producer._engine
        assert engine is not None
        assert engine.transactions is not None
        if engine.transactions.status.state.name == "DETACHED":
            await self.restart()
        with contextlib.suppress(IllegalStateError):
            await self.producer.abort_transaction()

    async def abort(self) -> None:
        with contextlib.suppress(IllegalStateError):
            await self.bounded("abort", API_S, self.producer.abort_transaction())

    async def in_calls(self, attempt: Attempt) -> None:
        await self.bounded("begin", CALL_S, self.producer.begin_transaction())
        attempt.transaction = self.producer.last_transaction
        await self.work(attempt)
        await self.bounded("commit", CALL_S, self.producer.commit_transaction())

    async def work(self, attempt: Attempt) -> None:
        tx = attempt.transaction
        assert tx is not None
        for tp in self.rng.sample(TPS, self.rng.randint(1, 4)):
            for _ in range(self.rng.choice([1, 1, 5])):
                number = sum(map(len, attempt.values.values()))
                value = f"{self.name} {attempt.number} {number}".encode()
                delivery = tx.send(tp.topic, value, partition=tp.partition)
                attempt.values.setdefault(tp, []).append(value)
                if self.rng.random() < 0.2:
                    await delivery
                await self.change_level()
        if self.rng.random() < 0.5:
            attempt.has_offset = True
            try:
                await tx.send_offsets({OTHER: attempt.number}, GroupMetadata(self.name))
            except IllegalStateError:
                attempt.has_offset = False  # The other task had ended the transaction before.
                raise
            await self.change_level()
        if self.rng.random() < 0.3 and not self.stopped:
            await asyncio.sleep(self.rng.choice([0.01, 0.1, 1.0]))

    # -- the second task

    async def meddle(self) -> None:
        """Make calls beside those of the other task, and cancel some of them."""
        workload = self.workload
        assert isinstance(workload, PairedWorkload)
        while not self.stopped:
            await asyncio.sleep(self.rng.choice([0.0, 0.003, 0.05, 0.5]) * self.rng.random())
            if workload.alone or self.rng.random() < 0.5:
                await asyncio.sleep(0.3)
                continue
            call = self.rng.choice(CALLS)
            task = asyncio.ensure_future(call(self.producer))
            timer = None
            if self.rng.random() < 0.4:
                wait_s = self.rng.choice([0.0, 0.005, 0.05, 0.5]) * self.rng.random()
                timer = asyncio.get_running_loop().call_later(wait_s, task.cancel)
            began = workload.sim.loop.time()
            (end,) = await asyncio.gather(task, return_exceptions=True)
            took_s = workload.sim.loop.time() - began
            if took_s > CALL_S:
                raise BrokenInvariantError(f"D: a call of {self.name} took {took_s:.3f} s.")
            if timer is None and isinstance(end, asyncio.CancelledError):
                raise BrokenInvariantError("A call that nobody cancelled was cancelled.")
            if isinstance(end, Exception) and not isinstance(end, ALLOWED):
                raise end
            if timer is not None:
                timer.cancel()


async def begin_and_abort(producer: Producer[Any, Any]) -> None:
    """Make an empty transaction."""
    await producer.begin_transaction()
    await producer.abort_transaction()


CALLS: list[Callable[[Producer[Any, Any]], Coroutine[Any, Any, object]]] = [
    begin_and_abort,
    lambda producer: producer.commit_transaction(),
    lambda producer: producer.abort_transaction(),
    lambda producer: producer.restart(),
    lambda producer: producer.restart(),
    lambda producer: producer.flush(),
]


class PairedWorkload(TransactingWorkload):
    """One run. In some, only the level changes, or only the calls are paired."""

    def choose(self) -> None:
        rng = self.sim.rng
        self.alone = rng.random() < 0.3
        """Whether each producer has one task only."""
        self.levels: list[int] = rng.choice([[], [0, 2], [0, 1, 2, 2]])
        """The levels to which the cluster changes."""

    async def main(self, sim: Any) -> seeded.Outcome:
        self.sim = sim
        self.choose()
        return await super().main(sim)

    def author(self, producer: Producer[Any, Any], name: str) -> Author:
        return PairedAuthor(self, producer, name)

    async def close(self, producer: Producer[Any, Any]) -> None:
        await self.bounded("close", CLOSE_S, producer.close())

    def heal(self) -> None:
        super().heal()
        # A coordinator that has refused a request since a downgrade refuses all others until it
        # has moved.
        self.cluster.set_transaction_version(2)
        for author in self.authors:
            with contextlib.suppress(ValueError):
                self.cluster.move_coordinator(author.name)


def run(seed: int) -> seeded.Outcome:
    """Run one seed. If the run fails, raise its error with the seed in a note."""
    return seeded.run(seed, PairedWorkload)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(int(sys.argv[1]))) + "\n")
