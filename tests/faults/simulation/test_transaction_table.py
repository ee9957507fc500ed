"""Every error at every request of a transaction: what the program sees, and what it can do then.

`transaction_table.csv` was written by hand from the table of KIP-1050 and the rules for codes that
it does not list. The test of a row injects one fault into the embedded cluster until the program
sees an error. It observes the category of that error, the state of the producer, and the calls that
the producer then allows. After each allowed call, a new transaction must commit.

The observed values depend only on the injected fault, never on the values that the row expects. So
a wrong value in any column of a row fails the test of that row. A test verifies this, too.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from thinned import in_turns
from world import World, simulate

from aiokclient import GroupMetadata, Producer, TopicPartition
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    NotCoordinatorError,
    error_for,
)
from aiokclient.protocol import ApiKey

CATEGORIES = {
    "abortable": AbortableError,
    "configuration": InvalidConfigurationError,
    "recoverable": ApplicationRecoverableError,
}
APIS = {
    "FindCoordinator group": ApiKey.FIND_COORDINATOR,
    "FindCoordinator transaction": ApiKey.FIND_COORDINATOR,
    "InitProducerId": ApiKey.INIT_PRODUCER_ID,
    "AddPartitionsToTxn": ApiKey.ADD_PARTITIONS_TO_TXN,
    "Produce": ApiKey.PRODUCE,
    "AddOffsetsToTxn": ApiKey.ADD_OFFSETS_TO_TXN,
    "TxnOffsetCommit": ApiKey.TXN_OFFSET_COMMIT,
    "EndTxn": ApiKey.END_TXN,
}
LEVELS = ("0", "2")
CANNOT_OCCUR = {
    ("AddPartitionsToTxn", "2"): "Produce adds partitions on its own at level 2 (KIP-890).",
    ("AddOffsetsToTxn", "2"): "TxnOffsetCommit adds the group on its own at level 2 (KIP-890).",
}
"""The requests that a level does not have, with the reasons."""

KIP_1050 = {2, 3, 6, 7, 14, 15, 16, 17, 18, 19, 20, 21, 22, 25, 29, 30, 31, 35, 43, 47, 48, 49}
KIP_1050 |= {51, 53, 58, 82, 87, 90, 120}
"""The codes of the exceptions in KIP-1050's table. Its other exceptions have no code:
IllegalStateException, KafkaException, RuntimeException, CommitFailedException,
CorrelationIdMismatchException."""
RECORDS_ALONE = {10, 32, 44, 76}
"""The codes that only Produce can return, of all requests of a transaction."""
OTHERS = {-1, 45, 59, 69, 88, 113, 9999}
"""Codes that KIP-1050 leaves out. Kafka does not define the last one."""
FAULTS = {str(code) for code in KIP_1050 | RECORDS_ALONE | OTHERS}
FAULTS |= {"lost connection", "no response"}

OPTIONS = {
    "default_api_timeout_ms": 3000,
    "request_timeout_ms": 1000,
    "delivery_timeout_ms": 4000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
TP = TopicPartition("t", 0)
MEMBER = GroupMetadata("g")


class Injected(NamedTuple):
    """A fault that affects each request of an API, at a level of transaction.version."""

    fault: str
    api: str
    level: str


class Observed(NamedTuple):
    """The effects of a fault that the program sees: expected by a row, or seen in a simulation."""

    category: str
    state: str
    calls: str
    """The allowed calls, in alphabetical order."""


class Row(NamedTuple):
    name: str
    injected: Injected
    expected: Observed

    def differences(self) -> dict[str, tuple[str, str]]:
        """Return the columns that differ, with the expected and the observed values."""
        pairs = zip(Observed._fields, self.expected, observe(self.injected), strict=True)
        return {name: (expected, seen) for name, expected, seen in pairs if expected != seen}


def read(line: dict[str, str]) -> Row:
    expected = Observed(line["category"], line["state"], line["calls"])
    return Row(line["name"], Injected(line["fault"], line["api"], line["level"]), expected)


with (Path(__file__).parent / "transaction_table.csv").open(newline="") as file:
    ROWS = [read(line) for line in csv.DictReader(file)]


# -- observing


def fault_of(world: World, injected: Injected) -> Any:
    api = APIS[injected.api]
    if injected.fault == "lost connection":
        return world.cluster.drop(api, when="before")
    if injected.fault == "no response":
        return world.cluster.delay(api, 5000, when="before")
    return world.cluster.fail(api, int(injected.fault))


async def use(world: World, injected: Injected, producer: Producer[Any, Any]) -> None:
    """Make the calls that send the request, until one of them raises."""
    if injected.api == "InitProducerId":
        await producer.restart()
        return
    await producer.begin_transaction()
    if injected.api in ("FindCoordinator group", "AddOffsetsToTxn", "TxnOffsetCommit"):
        await producer.send_offsets_to_transaction({TP: 1}, MEMBER)
    else:
        producer.send("t", b"lost", partition=0)
    if injected.api == "FindCoordinator transaction":
        # Make the producer look up the coordinator again.
        with world.cluster.fail(ApiKey.END_TXN, NotCoordinatorError, times=1):
            await producer.commit_transaction()
    await producer.commit_transaction()


def state_of(producer: Producer[Any, Any]) -> str:
    """Return the state of the transaction manager, as the table names it."""
    engine = producer._engine
    assert engine is not None
    assert engine.transactions is not None
    return engine.transactions.status.state.name.lower().replace("_", " ")


def category_of(error: KafkaError) -> str:
    (category,) = (name for name, kind in CATEGORIES.items() if isinstance(error, kind))
    return category


async def send(producer: Producer[Any, Any]) -> None:
    producer.send("t", b"refused", partition=0)


CALLS: Mapping[str, Callable[[Producer[Any, Any]], Awaitable[object]]] = {
    "send": send,
    "send offsets": lambda producer: producer.send_offsets_to_transaction({TP: 1}, MEMBER),
    "begin": lambda producer: producer.begin_transaction(),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
    "restart": lambda producer: producer.restart(),
}


async def first_allowed(producer: Producer[Any, Any], category: str, calls: list[str]) -> str:
    """Make these calls until one is allowed.

    Return its name. A refused call must change nothing.
    """
    for name in calls:
        state = state_of(producer)
        refusal: KafkaError | None = None
        try:
            await CALLS[name](producer)
        except KafkaError as error:
            refusal = error
        if refusal is None:
            return name
        if isinstance(refusal, IllegalStateError):
            assert "Allowed calls" in str(refusal)
        else:
            # If the restart failed, another restart is needed, whatever the error was.
            again = "recoverable" if state == "uninitialized" else category
            assert category_of(refusal) == again, name
        assert state_of(producer) == state, name
    return "none"


async def scenario(world: World, injected: Injected, calls: list[str]) -> Observed:
    """Inject the fault, and make these calls until one is allowed. Its name is in the result."""
    async with world.producer(transactional_id="t-1", **OPTIONS) as producer:
        with fault_of(world, injected), pytest.raises(KafkaError) as caught:
            await use(world, injected, producer)
        category, state = category_of(caught.value), state_of(producer)
        allowed = await first_allowed(producer, category, calls)
        async with producer.transaction() as tx:
            tx.send("t", b"next", partition=0)
    async with world.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([TP])
        assert [record.value async for record in consumer.until_end()] == [b"next"]
    return Observed(category, state, allowed)


@functools.cache
def observe(injected: Injected) -> Observed:
    """Inject a fault, and find all calls that are then allowed, each in a simulation of its own."""
    left, allowed = list(CALLS), []
    while left:
        seen = simulate(
            functools.partial(scenario, injected=injected, calls=left),
            brokers=1,
            topics={"t": 1},
            transaction_version=int(injected.level),
        )
        allowed.append(seen.calls)
        # Continue after the allowed call. Those before it were refused.
        del left[: left.index(seen.calls) + 1]
    return seen._replace(calls=" ".join(sorted(allowed)))


# -- the rows


def name_of(row: Row) -> str:
    return "-".join((*row.injected, row.name)).replace(" ", "-")


TURNS = {Injected(*each) for each in in_turns(4, sorted(FAULTS), APIS, LEVELS)}
TESTED = [row for row in ROWS if row.injected in TURNS or (row.injected.api, "2") in CANNOT_OCCUR]
"""The rows of `make test`: each fault at every second request, at one of its levels."""


@pytest.mark.parametrize("row", TESTED, ids=name_of)
def test_a_fault_gives_one_category_and_a_state_that_allows_some_calls(row: Row) -> None:
    assert row.differences() == {}


def test_the_table_is_complete() -> None:
    """Each fault is in the table at each request of each level, once."""
    rows = [row.injected for row in ROWS]
    assert len(set(rows)) == len(rows)
    assert set(rows) == {
        Injected(fault, api, level)
        for fault in FAULTS
        for api in APIS
        for level in LEVELS
        if (api, level) not in CANNOT_OCCUR
    }
    print(f"\n{len(rows)} rows: {len(FAULTS)} faults at {len(APIS)} requests at two levels")  # noqa: T201
    assert len(rows) >= 350


def test_the_table_names_each_code_as_kafka_does() -> None:
    for row in ROWS:
        fault = row.injected.fault
        error = None if " " in fault else error_for(int(fault))
        assert row.name == (error.name if error is not None else "")


@pytest.mark.slow
def test_each_row_fails_when_any_of_its_values_is_another_one() -> None:
    columns = {name: {getattr(row.expected, name) for row in ROWS} for name in Observed._fields}
    columns["calls"] |= {"", "abort", "abort begin restart"}
    flips = 0
    for row in TESTED:
        for name, values in columns.items():
            for value in values - {getattr(row.expected, name)}:
                flipped = row._replace(expected=row.expected._replace(**{name: value}))
                assert list(flipped.differences()) == [name]
                flips += 1
    assert flips == 8 * len(TESTED)


@pytest.mark.parametrize("level", ["0", "1", "2"])
def test_the_requests_of_a_transaction_are_those_of_its_level(level: str) -> None:
    """The table leaves out a pair of API and level if, and only if, the pair cannot occur."""

    async def sent(world: World) -> set[ApiKey]:
        async with world.producer(transactional_id="t-1") as producer:
            async with producer.transaction() as tx:
                tx.send("t", b"value", partition=0)
                await tx.send_offsets({TP: 1}, MEMBER)
            return {request.api for request in world.cluster.requests}

    keys = simulate(sent, transaction_version=int(level))
    as_level = "2" if level == "2" else "0"
    for api, key in APIS.items():
        assert (key in keys) is ((api, as_level) not in CANNOT_OCCUR)
