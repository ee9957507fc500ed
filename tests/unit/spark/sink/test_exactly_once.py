"""Tests of exactly-once sinks whose tasks and drivers end, repeat, or continue unexpectedly.

Each test acts as the driver and its tasks, without Spark, on the embedded cluster and on a real
Kafka. Tasks that run at the same time have separate clients, as in several executors.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from open_transactions import none_open

from aiokclient import Admin, Client, Consumer
from aiokclient.errors import KafkaError
from aiokclient.spark.sink.batch_feed import BatchFeed
from aiokclient.spark.sink.exactly_once import ExactlyOnce, WrittenPart, abort, commit
from aiokclient.spark.sink.markers import Position
from aiokclient.spark.sink.options import SinkOptions

pa = pytest.importorskip("pyarrow")

Servers = Any
FENCED = "Another attempt or another run of the query has started"
BOTH = (["a", "b"], ["c", "d"])
"""The rows of two Spark partitions."""


class Rows(BatchFeed):
    """The rows of one task. All but the first row wait for the event `goes_on`."""

    def __init__(self, values: Sequence[str], goes_on: asyncio.Event | None = None) -> None:
        super().__init__()
        self._values = values
        self._goes_on = goes_on
        self.waits = asyncio.Event()

    async def read_batches(self) -> AsyncIterator[Any]:
        for number, value in enumerate(self._values):
            if number == 1 and self._goes_on is not None:
                self.waits.set()
                await self._goes_on.wait()
            yield pa.record_batch({"value": [value.encode()]})


class Query:
    """A process that takes part in a query, with its own client: an executor or the driver."""

    def __init__(self, client: Client, name: str, options: SinkOptions) -> None:
        self.client, self.name, self.options = client, name, options

    async def task(
        self, partition: int, rows: Rows | Sequence[str], batch: int = 0
    ) -> WrittenPart | None:
        """Write the rows of one task."""
        feed = rows if isinstance(rows, Rows) else Rows(rows)
        write = ExactlyOnce(self.options, Position(self.name, partition, batch))
        return await write.write_rows(feed, self.client)

    async def tasks(
        self, partitions: Sequence[Sequence[str]], batch: int = 0
    ) -> list[WrittenPart | None]:
        """Write the rows of all tasks of a batch."""
        return await asyncio.gather(
            *(self.task(number, rows, batch) for number, rows in enumerate(partitions))
        )

    async def commit(self, parts: Sequence[WrittenPart | None], batch: int = 0) -> None:
        """Commit a batch, as the driver does."""
        written = [part for part in parts if part is not None]
        await commit(self.options, written, len(parts), batch, self.client)

    async def run(self, partitions: Sequence[Sequence[str]], batch: int = 0) -> None:
        """Write and commit a batch."""
        await self.commit(await self.tasks(partitions, batch), batch)

    async def output(self) -> list[str]:
        """Wait until no transaction is open, and return the committed values, sorted."""
        await none_open(dict(self.options.client)["bootstrap.servers"], str(self.options.topic))
        return await self.read()

    async def read(self) -> list[str]:
        """Return the values that are committed now, sorted."""
        async with Consumer(
            str(self.options.topic),
            client=self.client,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            found = [record.value async for record in consumer.until_end()]
        return sorted(value.decode() for value in found)


async def until_aborted(query: Query, transactional_ids: list[str]) -> None:
    """Wait until the coordinator has aborted these transactions."""
    async with asyncio.timeout(60), Admin(client=query.client) as admin:
        while True:
            described = await admin.describe_transactions(transactional_ids)
            states = {each.state for each in described.raise_for_errors().values()}
            if states == {"CompleteAbort"}:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
async def client(cluster_servers: Servers) -> AsyncIterator[Client]:
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        yield client


@pytest.fixture
async def query(cluster_servers: Servers, client: Client) -> Query:
    name = uuid.uuid4().hex[:12]
    given = {
        "kafka.bootstrap.servers": cluster_servers.bootstrap,
        "topic": await cluster_servers.new_topic(2),
        "deliveryGuarantee": "exactly-once",
        "checkpointLocation": "unused",
        # The coordinator aborts no transaction while a test waits.
        "kafka.transaction.timeout.ms": "600000",
    }
    return Query(client, name, SinkOptions.parse(given, streaming=True))


@pytest.fixture
async def zombie(cluster_servers: Servers, query: Query) -> AsyncIterator[Query]:
    """The same query in another process, which continues although Spark considers it ended."""
    async with Client(bootstrap_servers=cluster_servers.bootstrap) as client:
        yield Query(client, query.name, query.options)


async def test_task_that_goes_on_after_its_batch_was_repeated_writes_nothing(
    query: Query, zombie: Query
) -> None:
    goes_on = asyncio.Event()
    rows = Rows(["a", "b"], goes_on)
    old = asyncio.create_task(zombie.task(0, rows))
    await rows.waits.wait()
    await query.run(BOTH)
    goes_on.set()
    with pytest.raises(KafkaError):
        await old
    await query.run([["e"]], batch=1)
    assert await query.output() == ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize("committed", [0, 1])
async def test_task_that_begins_after_its_batch_was_committed_writes_nothing(
    query: Query, zombie: Query, committed: int
) -> None:
    for batch in range(committed + 1):
        await query.run(BOTH, batch)
    if committed:
        with pytest.raises(KafkaError, match="batch 1 is committed already"):
            await zombie.task(0, BOTH[0])
    else:
        assert await zombie.task(0, BOTH[0]) is None
    assert Counter(await query.output()) == Counter("abcd" * (committed + 1))


async def test_task_that_begins_before_the_driver_commits_fails_the_batch_and_doubles_nothing(
    query: Query, zombie: Query
) -> None:
    parts = await query.tasks(BOTH)
    late = await zombie.task(0, BOTH[0])
    with pytest.raises(KafkaError, match=FENCED):
        await query.commit(parts)
    # The driver is started again, and the transaction of the zombie is left open.
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]
    with pytest.raises(KafkaError, match=FENCED):
        await zombie.commit([late, None])
    assert await query.output() == ["a", "b", "c", "d"]


async def test_two_attempts_of_a_task_at_the_same_time_double_nothing(
    query: Query, zombie: Query
) -> None:
    attempts = [each.task(0, BOTH[0]) for each in (query, zombie)]
    first, second = await asyncio.gather(*attempts, return_exceptions=True)
    for part in (first, second):
        if isinstance(part, WrittenPart):
            # The other attempt may have fenced this one.
            with contextlib.suppress(KafkaError):
                await query.commit([part, await query.task(1, BOTH[1])])
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_driver_that_ends_between_two_commits_is_completed_by_the_next(
    query: Query, zombie: Query
) -> None:
    parts = await zombie.tasks(BOTH)
    await zombie.commit([parts[0], None])
    await query.run(BOTH)
    # The former driver continues.
    with pytest.raises(KafkaError, match=FENCED):
        await zombie.commit(parts)
    await abort([part for part in parts if part], [], zombie.client)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_abort_after_a_commit_of_some_tasks_is_completed_by_a_repetition(
    query: Query,
) -> None:
    parts = [part for part in await query.tasks(BOTH) if part]
    await query.commit([parts[0], None])
    await abort(parts, [], query.client)
    assert await query.output() == ["a", "b"]
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_batch_that_is_repeated_in_fewer_partitions_is_refused(query: Query) -> None:
    parts = await query.tasks([*BOTH, []])
    await query.commit([None, parts[1], None])
    with pytest.raises(KafkaError) as caught:
        await query.run([["a", "b", "c", "d"]])
    assert str(caught.value).startswith(
        f"Spark partition 1 of batch 0, query {query.name} is committed already, and the batch has "
        "only 1 Spark partitions now."
    )
    assert str(caught.value).endswith("Nothing was committed.")
    async with asyncio.timeout(60):
        # Poll `read()`, because `output()` would wait for the end of the refused transaction.
        while True:
            if await query.read() == ["c", "d"]:
                break
            await asyncio.sleep(0.02)
    await query.run([*BOTH, []])
    assert await query.output() == ["a", "b", "c", "d"]


async def test_later_batches_may_have_other_numbers_of_partitions(query: Query) -> None:
    batches = [["a"]], [["b"], ["c"], ["d"]], [[], ["e"]], [["f"]], [["g"], [], [], ["h"]]
    for batch, partitions in enumerate(batches):
        await query.run(partitions, batch)
        await query.run(partitions, batch)
    assert await query.output() == list("abcdefgh")


@pytest.mark.parametrize("repeated", [[], ["a", "x"], ["a"], ["a", "b", "b"]])
async def test_task_that_is_repeated_with_other_rows_is_refused(
    query: Query, repeated: list[str]
) -> None:
    await query.run(BOTH)
    with pytest.raises(KafkaError, match=f"committed with 2 rows .* with {len(repeated)} rows"):
        await query.task(0, repeated)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_transaction_that_the_coordinator_has_aborted_is_not_committed(
    query: Query,
) -> None:
    properties = (*query.options.producer, ("transaction.timeout.ms", "1000"))
    options = replace(query.options, producer=properties, transaction_timeout_ms=1000)
    brief = Query(query.client, query.name, options)
    parts = await brief.tasks(BOTH)
    await until_aborted(brief, [part.position.transactional_id for part in parts if part])
    with pytest.raises(KafkaError, match=r"longer than kafka.transaction.timeout.ms \(1000\)"):
        await brief.commit(parts)
    assert await query.output() == []
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_abort_ends_the_transactions_of_tasks_that_have_reported_nothing(
    query: Query, zombie: Query
) -> None:
    goes_on = asyncio.Event()
    rows = Rows(["a", "b"], goes_on)
    stopped = asyncio.create_task(zombie.task(0, rows))
    await rows.waits.wait()
    reported = await query.task(1, BOTH[1])
    assert reported is not None
    await abort([reported], [Position(query.name, 0, 0)], query.client)
    goes_on.set()
    with pytest.raises(KafkaError):
        await stopped
    assert await query.output() == []
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]


async def test_abort_ends_a_transaction_that_a_stopped_task_begins_after_it(
    query: Query, zombie: Query
) -> None:
    ids = [Position(query.name, number, 0) for number in range(2)]
    aborting = asyncio.create_task(abort([], ids, query.client))
    async with asyncio.timeout(60), Admin(client=query.client) as admin:
        # Wait until the first look has fenced the id that the task uses then.
        while True:
            if (await admin.describe_transactions([ids[0].transactional_id])).ok:
                break
            await asyncio.sleep(0.01)
    # Spark ends the rows of a stopped task early.
    await zombie.task(0, ["a"])
    await aborting
    assert await query.output() == []
    await query.run(BOTH)
    assert await query.output() == ["a", "b", "c", "d"]
