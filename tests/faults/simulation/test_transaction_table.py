"""Every error at every request of a transaction: what the program sees, and what it can do then.

`transaction_table.csv` was written by hand from the table of KIP-1050 and the rules for codes that
it does not list. Each row injects one fault into the embedded cluster until the program sees an
error, and checks the category of that error, the state of the producer, and the calls that the
state allows. After an abort, or after a restart, a next transaction must commit.
"""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from world import World, simulate

from aiokclient import GroupMetadata, Producer, TopicPartition
from aiokclient.errors import (
    AbortableError,
    ApplicationRecoverableError,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
)
from aiokclient.protocol import ApiKey

CATEGORIES = {
    "abortable": AbortableError,
    "configuration": InvalidConfigurationError,
    "recoverable": ApplicationRecoverableError,
}
APIS = {
    "FindCoordinator": ApiKey.FIND_COORDINATOR,
    "InitProducerId": ApiKey.INIT_PRODUCER_ID,
    "AddPartitionsToTxn": ApiKey.ADD_PARTITIONS_TO_TXN,
    "Produce": ApiKey.PRODUCE,
    "AddOffsetsToTxn": ApiKey.ADD_OFFSETS_TO_TXN,
    "TxnOffsetCommit": ApiKey.TXN_OFFSET_COMMIT,
    "EndTxn": ApiKey.END_TXN,
}
CANNOT_OCCUR = {
    ("AddPartitionsToTxn", "2"): "Produce adds partitions on its own at level 2 (KIP-890).",
    ("AddOffsetsToTxn", "2"): "TxnOffsetCommit adds the group on its own at level 2 (KIP-890).",
}
"""The requests that a level does not have, with the reasons."""

OPTIONS = {
    "default_api_timeout_ms": 3000,
    "request_timeout_ms": 1000,
    "delivery_timeout_ms": 4000,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
}
TP = TopicPartition("t", 0)
MEMBER = GroupMetadata("g")


class Row(NamedTuple):
    fault: str
    name: str
    api: str
    level: str
    category: str
    state: str
    calls: str


with (Path(__file__).parent / "transaction_table.csv").open(newline="") as file:
    ROWS = [Row(**row) for row in csv.DictReader(file)]


def fault_of(world: World, row: Row) -> Any:
    api = APIS[row.api]
    if row.fault == "lost connection":
        return world.cluster.drop(api, when="before")
    if row.fault == "no response":
        return world.cluster.delay(api, 5000, when="before")
    return world.cluster.fail(api, int(row.fault))


async def use(row: Row, producer: Producer[Any, Any]) -> None:
    """Make the calls that send the request of a row, until one of them raises."""
    if row.api == "InitProducerId":
        await producer.restart()
        return
    await producer.begin_transaction()
    if row.api in ("FindCoordinator", "AddOffsetsToTxn", "TxnOffsetCommit"):
        await producer.send_offsets_to_transaction({TP: 1}, MEMBER)
    else:
        producer.send("t", b"lost", partition=0)
    await producer.commit_transaction()


def state_of(producer: Producer[Any, Any]) -> str:
    """Return the state of the transaction manager, as the table names it."""
    engine = producer._engine
    assert engine is not None
    assert engine.transactions is not None
    return engine.transactions.status.state.name.lower().replace("_", " ")


async def check_calls(producer: Producer[Any, Any], row: Row) -> None:
    """Check that calls other than the allowed ones raise, and change nothing."""
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "begin": producer.begin_transaction,
        "commit": producer.commit_transaction,
        "abort": producer.abort_transaction,
    }
    expected: tuple[type[KafkaError], ...] = (CATEGORIES[row.category], IllegalStateError)
    if row.state == "uninitialized":
        expected = (
            CATEGORIES["recoverable"],
        )  # Whatever ended the restart, another one is needed.
    with pytest.raises(expected):
        producer.send("t", b"refused")
    for name, call in calls.items():
        if name not in row.calls.split():
            with pytest.raises(expected):
                await call()
    assert state_of(producer) == row.state


async def scenario(world: World, row: Row, leave: str) -> None:
    async with world.producer(transactional_id="t-1", **OPTIONS) as producer:
        with fault_of(world, row), pytest.raises(KafkaError) as caught:
            await use(row, producer)
        error = caught.value
        seen = [name for name, kind in CATEGORIES.items() if isinstance(error, kind)]
        assert seen == [row.category], repr(error)
        assert state_of(producer) == row.state
        await check_calls(producer, row)
        if leave == "abort":
            await producer.abort_transaction()
        else:
            await producer.restart()
        async with producer.transaction() as tx:
            tx.send("t", b"next", partition=0)
    async with world.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([TP])
        assert [record.value async for record in consumer.until_end()] == [b"next"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(row[:4]).replace(" ", "-"))
def test_a_fault_gives_one_category_and_a_state_that_allows_some_calls(row: Row) -> None:
    assert (row.api, row.level) not in CANNOT_OCCUR
    for leave in row.calls.split():
        simulate(
            lambda world, leave=leave: scenario(world, row, leave),
            brokers=1,
            topics={"t": 1},
            transaction_version=int(row.level),
        )


def test_the_table_is_complete() -> None:
    pairs = {(row.fault, row.api, row.level) for row in ROWS}
    assert len(pairs) == len(ROWS)
    faults = {row.fault for row in ROWS}
    for fault in faults:
        for api in APIS:
            for level in ("0", "2"):
                assert ((fault, api, level) in pairs) is ((api, level) not in CANNOT_OCCUR)
    print(f"\n{len(ROWS)} rows: {len(faults)} faults at {len(APIS)} requests at two levels")  # noqa: T201
    assert len(ROWS) >= 350
