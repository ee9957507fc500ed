"""`replay` puts those dead letters that the caller chooses back to where they came from."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from aiokclient import Admin, Client, Consumer, ConsumerRecord, Producer, TopicPartition
from aiokclient.admin import ConfigResource, NewTopic
from aiokclient.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from aiokclient.types import TimestampType
from aiokclient.worker import DeadLetter, DeadLetterInfo, replay
from aiokclient.worker.dead_letters import dead_letter_of, shrink_dead_letter
from aiokclient.worker.retry import Failure


def letter_for(topic: str, offset: int, error: Exception, to: str, partition: int = 1) -> Any:
    """Return the dead letter of a record whose handler has failed."""
    record = ConsumerRecord(
        topic,
        partition,
        offset,
        1_700_000_000_000 + offset,
        TimestampType.CREATE_TIME,
        b"k%d" % offset,
        b"v%d" % offset,
        (("trace", b"%d" % offset),),
    )
    return dead_letter_of(
        record, Failure(error, 3, 1_700_000_001_000, "billing"), DeadLetter(to), 1
    )


class Topics:
    """A topic with two partitions, and one for its dead letters."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        name = uuid.uuid4().hex[:12]
        self.main, self.letters = f"orders-{name}", f"orders-{name}.dlq"

    async def create(self) -> None:
        async with Admin(bootstrap_servers=self.servers) as admin:
            made = await admin.create_topics(
                [NewTopic(self.main, 2, 1), NewTopic(self.letters, 1, 1)]
            )
            made.raise_for_errors()

    async def set_limit(self, value: str) -> None:
        """Set the size of the largest batch that the topic accepts."""
        resource = ConfigResource.topic(self.main)
        async with Admin(bootstrap_servers=self.servers) as admin:
            changed = await admin.alter_configs({resource: {"max.message.bytes": value}})
            changed.raise_for_errors()

    async def write(self, letters: Sequence[Any]) -> None:
        async with Producer(bootstrap_servers=self.servers) as producer:
            await producer.gather([producer.send(*each) for each in letters])

    async def write_failures(self, count: int, error: Exception) -> None:
        await self.write([letter_for(self.main, n, error, self.letters) for n in range(count)])

    async def read(self, topic: str) -> list[ConsumerRecord[bytes, bytes]]:
        options: dict[str, Any] = {"auto_offset_reset": "earliest"}
        async with Consumer(topic, bootstrap_servers=self.servers, **options) as consumer:
            return [record async for record in consumer.until_end()]

    async def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in await self.read(topic)]


@pytest.fixture
async def topics(embedded_servers: Any) -> Topics:
    topics = Topics(embedded_servers.bootstrap)
    await topics.create()
    return topics


async def test_replay_restores_records_in_their_partition_with_their_origin(
    cluster_servers: Any,
) -> None:
    topics = Topics(cluster_servers.bootstrap)
    await topics.create()
    await topics.write_failures(3, ValueError("no stock"))
    report = await replay(topics.letters, bootstrap_servers=topics.servers)
    assert report == type(report)({topics.main: 3}, 3, 0, 0, {}, False)
    assert (report.replayed, report.raise_for_errors()) == (3, None)
    records = await topics.read(topics.main)
    assert [(r.partition, r.key, r.value) for r in records] == [
        (1, b"k0", b"v0"),
        (1, b"k1", b"v1"),
        (1, b"k2", b"v2"),
    ]
    assert [r.timestamp for r in records] == [1_700_000_000_000 + n for n in range(3)]
    assert records[2].headers[0] == ("trace", b"2")
    info = DeadLetterInfo.of(records[2])
    assert info[:5] == (topics.main, 1, 2, 1_700_000_000_002, "billing")
    assert info[5:] == (None, None, None, 0, None, 1, ())
    # The dead letters stay, so another replay puts them back again.
    assert (await replay(topics.letters, bootstrap_servers=topics.servers)).replayed == 3
    assert len(await topics.read(topics.letters)) == 3


async def test_dry_run_counts_and_writes_nothing(topics: Topics) -> None:
    await topics.write_failures(3, ValueError())
    report = await replay(topics.letters, dry_run=True, bootstrap_servers=topics.servers)
    assert (report.topics, report.dry_run) == ({topics.main: 3}, True)
    assert await topics.values(topics.main) == []


async def test_where_and_limit_choose_records(topics: Topics) -> None:
    await topics.write_failures(2, ValueError())
    await topics.write_failures(3, TimeoutError())
    report = await replay(
        DeadLetter(topics.letters),
        where=lambda record: DeadLetterInfo.of(record).error_type == "TimeoutError",
        limit=2,
        bootstrap_servers=topics.servers,
    )
    assert (report.read, report.skipped, report.replayed) == (4, 2, 2)
    assert await topics.values(topics.main) == [b"v0", b"v1"]


async def test_where_that_raises_ends_the_replay_with_its_error(topics: Topics) -> None:
    await topics.write_failures(2, ValueError())

    def where(record: Any) -> bool:
        raise LookupError(record.offset)

    with pytest.raises(LookupError):
        await replay(topics.letters, where=where, bootstrap_servers=topics.servers)
    assert await topics.values(topics.main) == []


async def test_to_puts_all_records_into_another_topic_by_their_keys(topics: Topics) -> None:
    await topics.write_failures(4, ValueError())
    other = Topics(topics.servers)
    await other.create()
    async with Client(bootstrap_servers=topics.servers) as client:
        report = await replay(topics.letters, to=other.main, client=client)
    assert report.topics == {other.main: 4}
    assert {record.partition for record in await other.read(other.main)} == {0, 1}
    assert await topics.values(topics.main) == []


async def test_group_remembers_what_was_put_back(topics: Topics) -> None:
    await topics.write_failures(2, ValueError())
    options: dict[str, Any] = {"bootstrap_servers": topics.servers, "group_id": topics.main}
    assert (await replay(topics.letters, dry_run=True, **options)).replayed == 2
    assert (await replay(topics.letters, limit=1, **options)).replayed == 1
    assert (await replay(topics.letters, **options)).replayed == 1
    assert (await replay(topics.letters, **options)).read == 0
    await topics.write_failures(1, ValueError())
    assert (await replay(topics.letters, **options)).replayed == 1
    assert await topics.values(topics.main) == [b"v0", b"v1", b"v0"]


async def test_letters_that_cannot_be_put_back_are_reported_and_others_are_put_back(
    topics: Topics,
) -> None:
    good = letter_for(topics.main, 0, ValueError(), topics.letters)
    gone = letter_for(f"{topics.main}-gone", 1, ValueError(), topics.letters)
    without_traceback = shrink_dead_letter(letter_for(topics.main, 2, ValueError(), topics.letters))
    assert without_traceback is not None
    without_value = shrink_dead_letter(without_traceback)
    foreign = good._replace(headers=())
    own = letter_for(topics.letters, 3, ValueError(), topics.letters)
    await topics.write([foreign, gone, without_value, own, without_traceback, good])
    report = await replay(topics.letters, bootstrap_servers=topics.servers)
    assert (report.read, report.failed, report.topics) == (6, 4, {topics.main: 2})
    texts = {offset: str(error) for (_, offset), error in report.errors.items()}
    assert "No header names the topic it came from. Give to=." in texts[0]
    assert isinstance(
        report.errors[TopicPartition(topics.letters, 0), 1], UnknownTopicOrPartitionError
    )
    assert "Its value was left out because it was too large" in texts[2]
    assert f"{topics.main}-1, offset 2" in texts[2]
    assert "It came from this topic itself" in texts[3]
    with pytest.raises(KafkaError, match="No header names"):
        report.raise_for_errors()


async def test_partition_that_is_gone_is_replaced_by_the_choice_of_the_partitioner(
    topics: Topics,
) -> None:
    await topics.write([letter_for(topics.main, 0, ValueError(), topics.letters, partition=7)])
    assert (await replay(topics.letters, bootstrap_servers=topics.servers)).replayed == 1
    assert await topics.values(topics.main) == [b"v0"]


async def test_replay_ends_after_records_that_are_not_acknowledged(topics: Topics) -> None:
    await topics.write_failures(2, ValueError())
    options: dict[str, Any] = {"bootstrap_servers": topics.servers, "group_id": topics.main}
    await topics.set_limit("10")
    report = await replay(topics.letters, **options)
    assert (report.replayed, report.failed) == (0, 2)
    with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
        report.raise_for_errors()
    await topics.set_limit("100000")
    report = await replay(topics.letters, **options)
    assert report.replayed == 2, "the group has committed what was not put back"


async def test_missing_topics_are_errors_and_are_not_created(topics: Topics) -> None:
    await topics.write_failures(1, ValueError())
    missing = f"{topics.main}-missing"
    with pytest.raises(UnknownTopicOrPartitionError, match=missing):
        await replay(missing, bootstrap_servers=topics.servers)
    with pytest.raises(UnknownTopicOrPartitionError, match=missing):
        await replay(topics.letters, to=missing, bootstrap_servers=topics.servers)
    async with Admin(bootstrap_servers=topics.servers) as admin:
        assert missing not in await admin.list_topics()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"to": "d"}, ValueError, "is the topic of the dead letters itself"),
        ({"to": "no topic"}, KafkaError, "cannot be a topic"),
        ({"where": "key"}, TypeError, "is no function of a record"),
        ({"limit": 0}, TypeError, "limit must be at least 1"),
        ({"value_serializer": str.encode}, ConfigError, "It cannot use value_serializer"),
        ({"transactional_id": "t"}, ConfigError, "It cannot use transactional_id"),
        ({"group": "g"}, ConfigError, "group is not an option"),
    ],
)
async def test_wrong_argument_is_refused_before_a_connection(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await replay("d", bootstrap_servers="127.0.0.1:1", **arguments)
