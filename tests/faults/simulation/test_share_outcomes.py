"""Every fault at each request of a share session: what becomes of the session and of each lock.

`share_outcomes.csv` follows from what brokers do (KIP-932) and from what the library promises. The
test of a row runs a ShareConsumer over a broker that is scripted with one fault, in virtual time.
The consumer holds five records of partition 0 and three of partition 1. It settles records of both,
or asks for their renewal, so that the request with the fault contains them, and keeps the others.

    request      the request with the fault: a fetch with acknowledgements, an acknowledgement, or a
                 renewal
    level        where the fault is. "top": the code at the top of the answer. "acknowledgement":
                 the code of partition 0 for its acknowledgements or renewals. "always": the same,
                 in each of the requests. "records": the code of partition 0 for its fetch.
    fault        a code, which may come after the broker has applied the request; or another fault
    session      the next request: in the same session, with the next or the same epoch, or in a new
                 one, at once or later (after a backoff)
    settled      the outcome of what was settled in partition 0, and whether it was sent again
    other        the outcome of what was settled in partition 1
    held         what becomes of the records of partition 0 that are not settled
    other_held   what becomes of those of partition 1
    consumer     whether the consumer goes on

The observed values depend only on the fault, never on the values that the row expects. So a wrong
value in any column of a row fails the test of that row. A test verifies this, too.
"""

from __future__ import annotations

import asyncio
import csv
import functools
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scripted.share_broker import Seen, ShareBrokers, ShareFault

from aiokclient import ShareConsumer, State
from aiokclient.errors import KafkaError, LockLostError, error_for
from aiokclient.testing import Simulation

REQUESTS = ("fetch", "acknowledge", "renewal")
TOP = (0, -1, 3, 6, 7, 14, 15, 16, 29, 30, 35, 42, 56, 121, 122, 123, 133, 9999)
"""The codes at the top level: those of sessions and groups, others, and one that is unknown."""
PARTITION = (0, -1, 3, 7, 14, 15, 29, 30, 42, 56, 74, 75, 78, 100, 121, 122, 9999)
"""The codes of a partition."""
SHAPES = (
    "6 moved",
    "6 fenced",
    "15 applied",
    "121 of one",
    "omitted",
    "twice, error first",
    "twice, error last",
)
"""Other answers for a partition."""
REPEATED = ("15", "121")
LOSSES = (
    "unwritten",
    "lost before",
    "lost after",
    "no answer before",
    "no answer after",
    "late",
    "throttle",
    "throttle, then lost",
    "garbage",
)
"""Faults of the connection."""

SETTLED, OTHER_SETTLED = (0, 1, 2), (0,)
HELD, OTHER_HELD = (3, 4), (1, 2)
LATER_S = 0.05
OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 3000,
    "fetch_max_wait_ms": 500,
    "retry_backoff_ms": 200,
    "retry_backoff_max_ms": 400,
}


class Injected(NamedTuple):
    """A fault at one request."""

    request: str
    level: str
    fault: str


class Observed(NamedTuple):
    """The effects of a fault: expected by a row, or seen in a simulation."""

    session: str
    settled: str
    other: str
    held: str
    other_held: str
    consumer: str


class Row(NamedTuple):
    name: str
    injected: Injected
    expected: Observed

    def differences(self) -> dict[str, tuple[str, str]]:
        """Return the columns that differ, with the expected and the observed values."""
        pairs = zip(Observed._fields, self.expected, observe(self.injected), strict=True)
        return {name: (expected, seen) for name, expected, seen in pairs if expected != seen}


PATH = Path(__file__).parent / "share_outcomes.csv"


def read_rows() -> list[Row]:
    with PATH.open(newline="") as file:
        return [
            Row(
                line["name"],
                Injected(line["request"], line["level"], line["fault"]),
                Observed(*(line[name] for name in Observed._fields)),
            )
            for line in csv.DictReader(file)
        ]


ROWS = read_rows()


# -- observing


class Scenario:
    """A consumer that holds eight records, and a fault at one of its requests."""

    def __init__(self, sim: Simulation, injected: Injected) -> None:
        self.sim, self.injected = sim, injected
        lock_ms = 2_000 if injected.fault == "late" else 30_000
        self.brokers = ShareBrokers(sim.network, 2, lock_ms=lock_ms)
        self.fault = ShareFault(
            injected.request,
            injected.level.replace("always", "acknowledgement"),
            injected.fault,
            repeated=injected.level == "always",
        )
        self.reported: dict[tuple[int, int], KafkaError] = {}
        self.records: dict[tuple[int, int], Any] = {}

    async def run(self) -> Observed:
        self.brokers.produce(0, 5)
        self.brokers.produce(1, 3)
        consumer: ShareConsumer[Any, Any] = ShareConsumer(
            "t",
            group_id="g",
            bootstrap_servers=self.brokers.address,
            connector=self.sim.connector,
            clock=self.sim.clock,
            on_acknowledge_error=self.on_error,
            **OPTIONS,
        )
        try:
            await consumer.start()
            while len(self.records) < 8:
                found = await consumer.poll(5.0, 8 - len(self.records), tracked=True)
                self.records |= {(each.partition, each.offset): each for each in found}
            return await self.use(consumer)
        finally:
            await consumer.close()
            await self.brokers.stop()

    def on_error(self, error: Any) -> None:
        self.reported[error.record.partition, error.record.offset] = error

    async def use(self, consumer: ShareConsumer[Any, Any]) -> Observed:
        reading: asyncio.Task[Any] | None = None
        if self.injected.request == "fetch":
            reading = asyncio.create_task(consumer.poll(60.0, tracked=True))
            await asyncio.sleep(0.1)  # A fetch waits at the broker. The next one has the fault.
        elif self.injected.request == "acknowledge":
            consumer.stop()
        begun = len(self.brokers.requests)
        self.brokers.fault = self.fault
        if self.injected.fault == "unwritten":
            self.brokers.cut()
            await asyncio.sleep(0.01)
        wanted = [(0, offset) for offset in SETTLED] + [(1, offset) for offset in OTHER_SETTLED]
        deadlines = {key: self.records[key].lock_deadline for key in wanted}
        for key in wanted:
            if self.injected.request == "renewal":
                consumer.renew(self.records[key])
            else:
                consumer.done(self.records[key])
        outcomes = await self.commit(consumer, wanted)
        for key in wanted:
            if outcomes[key] is None and self.injected.request == "renewal":
                assert self.records[key].lock_deadline > deadlines[key]
        held = await self.settle_held(consumer)
        went_on = await self.check_consumer(consumer, reading)
        if reading is not None:
            await asyncio.wait([reading])
        return Observed(
            self.describe_session(begun),
            self.describe(0, SETTLED, outcomes),
            self.describe(1, OTHER_SETTLED, outcomes),
            _describe_held(held[0, offset] for offset in HELD),
            _describe_held(held[1, offset] for offset in OTHER_HELD),
            went_on,
        )

    async def commit(self, consumer: ShareConsumer[Any, Any], keys: list[Any]) -> dict[Any, Any]:
        """Return the outcomes of settlements, or the error of the consumer for all of them."""
        records = [self.records[key] for key in keys]
        committing = asyncio.create_task(consumer.commit(records, 120.0, return_exceptions=True))
        if self.injected.fault == "throttle, then lost":
            await self.fault.answered.wait()
            await asyncio.sleep(0.01)
            consumer.done([self.records[0, 3], self.records[1, 1]])
            await asyncio.sleep(0.1)
            self.brokers.cut()
        try:
            found = await committing
        except KafkaError as error:
            return dict.fromkeys(keys, error)
        return {(each.partition, each.offset): error for each, error in found.items()}

    async def settle_held(self, consumer: ShareConsumer[Any, Any]) -> dict[Any, str]:
        """Settle the other records; return what becomes of each."""
        await asyncio.sleep(0.02)
        found: dict[Any, str] = {}
        held = [(0, offset) for offset in HELD] + [(1, offset) for offset in OTHER_HELD]
        for key in held:
            record = self.records[key]
            if consumer.state is State.FAILED:
                found[key] = "failed"
            elif key in self.reported:
                found[key] = _describe_error(self.reported[key])
            elif record.lock_lost:
                assert not consumer.done(record)
                await asyncio.sleep(0)
                found[key] = _describe_error(self.reported[key])
            else:
                if self.injected.fault != "throttle, then lost" or key not in ((0, 3), (1, 1)):
                    consumer.done(record)
                outcome = (await self.commit_held(consumer, key))[key]
                found[key] = "kept" if outcome is None else f"kept, {_describe_error(outcome)}"
        return found

    async def commit_held(self, consumer: ShareConsumer[Any, Any], key: Any) -> dict[Any, Any]:
        try:
            found = await consumer.commit(self.records[key], 60.0, return_exceptions=True)
        except KafkaError as error:
            return {key: error}
        return dict.fromkeys([key], *found.values())

    async def check_consumer(
        self, consumer: ShareConsumer[Any, Any], reading: asyncio.Task[Any] | None
    ) -> str:
        """Return whether the consumer goes on: whether it gets a record that is produced now."""
        if consumer.state is State.FAILED:
            if reading is not None:
                await asyncio.wait([reading])
                assert isinstance(reading.exception(), KafkaError)
            with pytest.raises(KafkaError) as caught:
                await consumer.poll(1.0)
            return f"failed: {type(caught.value).__name__}"
        if self.injected.request == "acknowledge":  # It was stopped.
            return "goes on"
        self.brokers.produce(1, 1)
        found: list[Any] = await reading if reading is not None else []
        async with asyncio.timeout(30):
            while not any((each.partition, each.offset) == (1, 3) for each in found):
                found += await consumer.poll(60.0, tracked=True)
        return "goes on"

    # -- what was observed

    def describe_session(self, begun: int) -> str:
        """Return what the request after the fault shows of the session."""
        requests = self.brokers.requests[begun:]
        if self.injected.fault == "unwritten":
            return "reconnected" if requests and requests[0].epoch == 0 else "none"
        assert self.fault.seen, "The fault did not occur."
        faulted = self.fault.seen[0]
        following = [each for each in requests if each.at > faulted.at and each.epoch >= 0]
        if not following:
            return "none"
        found = following[0]
        since = self.fault.answered_at or faulted.at
        later = " later" if found.at - since > LATER_S else ""
        if self.injected.fault.startswith("no answer"):
            later = " after the timeout"
            assert found.at - faulted.at >= 3.0
        if found.epoch == 0:
            known = faulted.connection == found.connection
            return ("reopened" if known else "reconnected") + later
        assert found.connection == faulted.connection
        return {1: "next", 0: "same"}[found.epoch - faulted.epoch] + later

    def describe(self, partition: int, offsets: tuple[int, ...], outcomes: dict[Any, Any]) -> str:
        """Return the outcomes of settlements of a partition, and whether they were sent again."""
        texts = []
        for offset in offsets:
            error = outcomes[partition, offset]
            text = "confirmed" if error is None else _describe_error(error)
            if error is None and self.injected.request == "renewal":
                text = "renewed"
            times = self.count_sent(partition, offset)
            if self.injected.level != "always" and times > 1:
                text = f"{text} again"
            texts.append(text)
        return texts[0] if len(set(texts)) == 1 else " / ".join(texts)

    def count_sent(self, partition: int, offset: int) -> int:
        """Return how often the acknowledgement, or renewal, of a record was sent."""
        return sum(
            any(
                index == partition and batch.first_offset <= offset <= batch.last_offset
                for index, batch in each.list_acknowledged()
            )
            for each in self.brokers.requests
            if (each.kind == "renewal") is (self.injected.request == "renewal")
            and not _is_final_release(each)
        )


def _is_final_release(seen: Seen) -> bool:
    return all(batch.acknowledge_types == [2] for _, batch in seen.list_acknowledged())


def _describe_error(error: KafkaError) -> str:
    if isinstance(error, LockLostError):
        return f"lost {error.reason} {error.confirmed}"
    if type(error).__name__ == "AcknowledgeError":
        return "refused"
    return "failed"


def _describe_held(texts: Any) -> str:
    return " / ".join(dict.fromkeys(texts))


@functools.cache
def observe(injected: Injected) -> Observed:
    return Simulation(1, limit_s=1000).run(lambda sim: Scenario(sim, injected).run())


def list_faults() -> list[Injected]:
    """Return all faults that the table must have."""
    found: list[Injected] = []
    for request in REQUESTS:
        found += [Injected(request, "top", str(code)) for code in TOP]
        found += [Injected(request, "acknowledgement", str(code)) for code in PARTITION]
        found += [Injected(request, "acknowledgement", shape) for shape in SHAPES]
        found += [Injected(request, "top", f"{code} applied") for code in (15, 123)]
        found += [Injected(request, "always", code) for code in REPEATED]
        found += [Injected(request, "connection", loss) for loss in LOSSES]
    found += [Injected("fetch", "records", str(code)) for code in PARTITION if code]
    found += [Injected("fetch", "records", shape) for shape in SHAPES[:2]]
    return found


# -- the rows


def name_of(row: Row) -> str:
    return "-".join((*row.injected, row.name)).replace(" ", "-")


@pytest.mark.fault(13)
@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_a_fault_has_these_effects_on_the_session_and_on_locks(row: Row) -> None:
    assert row.differences() == {}


def test_the_table_of_share_outcomes_has_each_fault_at_each_request() -> None:
    """Each fault is in the table at each request, once."""
    rows = [row.injected for row in ROWS]
    assert len(set(rows)) == len(rows)
    assert set(rows) == set(list_faults())
    assert len(rows) >= 120


def test_the_table_of_share_outcomes_names_each_code_as_kafka_does() -> None:
    for row in ROWS:
        first = row.injected.fault.split()[0]
        error = error_for(int(first)) if first.lstrip("-").isdigit() else None
        assert row.name == (error.name if error is not None else "")


def test_each_row_of_share_outcomes_fails_when_one_of_its_values_differs() -> None:
    flips = 0
    for row in ROWS:
        for column in Observed._fields:
            for value in {getattr(each.expected, column) for each in ROWS}:
                if value == getattr(row.expected, column):
                    continue
                flipped = row._replace(expected=row.expected._replace(**{column: value}))
                assert list(flipped.differences()) == [column]
                flips += 1
    assert flips > 20 * len(ROWS)
