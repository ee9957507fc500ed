"""Putting dead letters back into the topics from which they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aiokclient.client import Client
from aiokclient.config.client import ClientConfig
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.config.producer import ProducerConfig
from aiokclient.consumer import Consumer
from aiokclient.consumer.arguments import require_count
from aiokclient.errors import ConfigError, KafkaError, UnknownTopicOrPartitionError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.producer import Producer
from aiokclient.producer.producer import require_topic
from aiokclient.types import ConsumerRecord, ProducerRecord, TopicPartition, public_in
from aiokclient.types.frozen import frozen
from aiokclient.types.named_tuple import NamedTuple
from aiokclient.worker.dead_letters import (
    DeadLetter,
    DeadLetterInfo,
    Origin,
    RawRecord,
    as_dead_letter,
    find_origin,
    replayed_record,
)

if TYPE_CHECKING:
    from aiokclient.cluster.lifecycle.parent import Parent
    from aiokclient.producer import Delivery

Where: TypeAlias = Callable[[ConsumerRecord[Any, Any]], object]
"""A function of a dead letter, with bytes as key and value, that returns whether it is chosen."""

LIST_RECORDS = 500
LIST_BYTES = 8_388_608
"""The size of the records that are read and sent before their outcomes are awaited, in bytes."""
SHOWN_ERRORS = 100
"""The number of errors that a report has, at most."""
REFUSED = (
    "key_serializer",
    "value_serializer",
    "key_deserializer",
    "value_deserializer",
    "deserialize_none",
    "on_record_error",
    "transactional_id",
)
"""The options that a replay cannot use: it moves bytes, and its records are independent."""


@public_in("aiokclient.worker")
@frozen
class ReplayReport:
    """The outcome of a replay.

    `topics` has the number of records that were put back into each topic, or that would be put back
    with `dry_run`. `read` counts the dead letters that were read, `skipped` those that `where` did
    not choose, and `failed` those that could not be put back. `errors` has the errors of the first
    100 of these, by partition and offset of the dead letter.
    """

    topics: Mapping[str, int]
    read: int
    skipped: int
    failed: int
    errors: Mapping[tuple[TopicPartition, int], KafkaError]
    dry_run: bool

    @property
    def replayed(self) -> int:
        """The number of records that were put back."""
        return sum(self.topics.values())

    def raise_for_errors(self) -> None:
        """Raise the first error, if there is any."""
        for error in self.errors.values():
            raise error


class Outgoing(NamedTuple):
    """A dead letter, and the record that is sent for it."""

    letter: RawRecord
    record: ProducerRecord


async def replay(
    dead_letter: str | DeadLetter,
    *,
    to: str | None = None,
    where: Where | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    client: Parent | None = None,
    **options: Any,
) -> ReplayReport:
    """Put dead letters back into the topics from which they came, and return a report.

        report = await replay("orders.dlq", where=is_timeout, bootstrap_servers="localhost:9092")

    Each record gets its own key, value, timestamp, and headers, in the partition from which it was
    read first. Headers that tell of failures are taken away, those of the origin stay, and
    `aiokclient.replays` counts replays. With `to`, all records go to this topic, and the
    partitioner chooses by the key. `where(record)` chooses records, which have bytes as keys and
    values; `DeadLetterInfo.of(record)` reads their headers. At most `limit` records are put back.
    With `dry_run`, nothing is written.

    The topic is read from its first record to its present end, and keeps its records: another
    replay puts them back again. With the option `group_id`, a replay begins where the last one of
    this group has ended, whatever `where` did not choose, and it commits what it has put back. Use
    a group of its own for this.

    `client` is a client whose connections are used. The options are those of `Client`, `Producer`,
    and `Consumer`. By default, only records of committed transactions are read.

    A dead letter whose origin is unknown, or that lacks its value, cannot be put back. The report
    has its error, and the others are put back. If a record is not acknowledged, the replay ends
    after the records that were sent with it. Raises UnknownTopicOrPartitionError if the topic of
    the dead letters, or `to`, does not exist, the errors of reading, and what `where` raises.
    After an error or a cancellation, some records may have been put back.
    """
    parts = _split_options(options, client)
    letters = as_dead_letter(dead_letter).topic
    if to is not None:
        require_topic(to)
        if to == letters:
            raise ArgumentValueError(f"to={to!r} is the topic of the dead letters itself.")
    if where is not None and not callable(where):
        raise ArgumentTypeError(f"where={where!r} is no function of a record.")
    if limit is not None:
        require_count("limit", limit)
    own = Client(**parts.client) if client is None else None
    shared: Parent = client or cast("Parent", own)
    producer = Producer[Any, Any](client=shared, **parts.producer)
    consumer = Consumer[Any, Any](client=shared, **parts.consumer)
    commits = parts.consumer.get("group_id") is not None
    used = None if dry_run else producer
    replaying = Replaying(letters, to, used, consumer, commits)
    async with AsyncExitStack() as stack:
        for each in (own, used, consumer):
            if each is not None:
                await stack.enter_async_context(each)
        return await replaying.read_letters(where, limit)


class OptionsOfReplay(NamedTuple):
    """Options, separated by the client that they belong to."""

    client: dict[str, Any]
    producer: dict[str, Any]
    consumer: dict[str, Any]


def _split_options(options: dict[str, Any], client: Parent | None) -> OptionsOfReplay:
    """Split options between a new client, a producer, and a consumer.

    The options of connections go to the new client, if there is one. Unknown options go to the
    producer, which raises ConfigError for them.
    """
    ClientConfig.hide_options(options, ProducerConfig, ConsumerConfig)
    if refused := [name for name in REFUSED if options.get(name) is not None]:
        raise ConfigError(
            f"replay() moves the bytes of records. It cannot use {', '.join(refused)}."
        )
    shared, produces = {*ClientConfig.declarations}, {*ProducerConfig.declarations}
    consumes = {*ConsumerConfig.declarations}
    for_both = {} if client is None else {n: v for n, v in options.items() if n in shared}
    consumer = {
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        **for_both,
        **{n: v for n, v in options.items() if n in consumes - shared},
        "allow_auto_create_topics": False,
        "enable_auto_commit": False,
    }
    producer = {
        n: v for n, v in options.items() if n not in shared and (n in produces or n not in consumes)
    }
    own = {n: v for n, v in options.items() if n in shared} if client is None else {}
    return OptionsOfReplay(own, {**for_both, **producer}, consumer)


class Replaying:
    """One replay. Without a producer, it only counts."""

    def __init__(
        self,
        letters: str,
        to: str | None,
        producer: Producer[Any, Any] | None,
        consumer: Consumer[Any, Any],
        commits: bool,
    ) -> None:
        self._letters = letters
        self._to = to
        self._producer = producer
        self._consumer = consumer
        self._commits = commits
        self._topics: Counter[str] = Counter()
        self._partitions: dict[str, int] | None = None
        """The number of partitions of each topic, once they are known."""
        self._read = self._skipped = self._failed = 0
        self._errors: dict[tuple[TopicPartition, int], KafkaError] = {}

    async def read_letters(self, where: Where | None, limit: int | None) -> ReplayReport:
        """Read all dead letters, put those back that are chosen, and return the report."""
        infos = await self._consumer.partitions_for(self._letters)
        if self._to is not None:
            count = await self._count_partitions(self._to)
            if isinstance(count, KafkaError):
                raise count
        self._consumer.assign([TopicPartition(self._letters, each.index) for each in infos])
        batches = self._consumer.batches(LIST_RECORDS, max_bytes=LIST_BYTES, until_end=True)
        async for records in batches:
            if await self._replay_records(records, where, limit):
                break
        return ReplayReport(
            dict(self._topics),
            self._read,
            self._skipped,
            self._failed,
            self._errors,
            self._producer is None,
        )

    async def _replay_records(
        self, records: Sequence[RawRecord], where: Where | None, limit: int | None
    ) -> bool:
        """Put back those records of a list that are chosen. Return whether the replay is over."""
        chosen: list[Outgoing] = []
        ends: dict[TopicPartition, int] = {}
        is_over = False
        for letter in records:
            self._read += 1
            ends[TopicPartition(letter.topic, letter.partition)] = letter.offset + 1
            if where is not None and not where(letter):
                self._skipped += 1
                continue
            outgoing = await self._address_letter(letter)
            if isinstance(outgoing, KafkaError):
                self._note_failure(letter, outgoing)
                continue
            chosen.append(outgoing)
            if limit is not None and len(chosen) + self._topics.total() == limit:
                is_over = True
                break
        if self._producer is None:
            self._topics.update(each.record.topic for each in chosen)
            return is_over
        failed = await self._send_records(self._producer, chosen)
        for letter in reversed(failed):
            ends[TopicPartition(letter.topic, letter.partition)] = letter.offset
        if self._commits and ends:
            await self._consumer.commit(ends)
        return is_over or bool(failed)

    async def _send_records(
        self, producer: Producer[Any, Any], chosen: Sequence[Outgoing]
    ) -> Sequence[RawRecord]:
        """Send records, wait for their outcomes, and return the letters that were not put back."""
        sent: list[tuple[Outgoing, Delivery]] = []
        failed: list[RawRecord] = []
        for each in chosen:
            try:
                sent.append((each, producer.send(*each.record)))
            except KafkaError as error:
                self._note_failure(each.letter, error)
                failed.append(each.letter)
        outcomes = await producer.gather([delivery for _, delivery in sent], return_exceptions=True)
        for (each, _), outcome in zip(sent, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                self._note_failure(each.letter, outcome)
                failed.append(each.letter)
            else:
                self._topics[each.record.topic] += 1
        return sorted(failed, key=lambda letter: letter.offset)

    async def _address_letter(self, letter: RawRecord) -> Outgoing | KafkaError:
        """Return the record to send for a dead letter, or the error why there is none."""
        origin = find_origin(letter)
        topic = self._to
        if topic is None:
            if origin is None:
                return _refusal(letter, "No header names the topic it came from. Give to=.")
            topic = origin.topic
        if topic == self._letters:
            return _refusal(letter, "It came from this topic itself. Give to=.")
        if "value" in DeadLetterInfo.of(letter).dropped:
            place = "its topic" if origin is None else f"{origin.topic}-{origin.partition}"
            where = "" if origin is None else f", offset {origin.offset}"
            return _refusal(
                letter,
                "Its value was left out because it was too large. The original record may still be "
                f"in {place}{where}.",
            )
        count = await self._count_partitions(topic)
        if isinstance(count, KafkaError):
            return count
        partition = self._choose_partition(origin, count)
        return Outgoing(letter, replayed_record(letter, topic, partition))

    def _choose_partition(self, origin: Origin | None, count: int) -> int | None:
        """Return the partition of the origin, or None if the partitioner must choose."""
        if self._to is not None or origin is None or origin.partition >= count:
            return None
        return origin.partition

    async def _count_partitions(self, topic: str) -> int | KafkaError:
        """Return the number of partitions of a topic, or the error if there is no such topic."""
        if self._partitions is None:
            # The consumer, unlike the producer, never lets the brokers create a topic.
            listed = await self._consumer.list_topics()
            self._partitions = {name: len(infos) for name, infos in listed.items()}
        count = self._partitions.get(topic)
        if count is None:
            return UnknownTopicOrPartitionError(topic_partition=TopicPartition(topic, -1))
        return count

    def _note_failure(self, letter: RawRecord, error: KafkaError) -> None:
        self._failed += 1
        if len(self._errors) < SHOWN_ERRORS:
            self._errors[TopicPartition(letter.topic, letter.partition), letter.offset] = error


def _refusal(letter: RawRecord, reason: str) -> KafkaError:
    place = TopicPartition(letter.topic, letter.partition)
    return KafkaError(
        f"The dead letter at offset {letter.offset} cannot be put back. {reason}",
        topic_partition=place,
    )
