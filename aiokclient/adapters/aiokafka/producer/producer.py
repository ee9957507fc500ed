"""The producer with aiokafka's interface."""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import warnings
from collections.abc import Callable, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Final, Self

from aiokclient import (
    GroupMetadata,
    Producer,
    TopicPartition,
)
from aiokclient import OffsetAndMetadata as NativeOffset
from aiokclient.adapters.aiokafka.abc import AbstractTokenProvider
from aiokclient.adapters.aiokafka.client import AIOKafkaClient, refuse_deprecated
from aiokclient.adapters.aiokafka.connection import ConnectionOptions, whole
from aiokclient.adapters.aiokafka.error_mapping import translate, translated_errors
from aiokclient.adapters.aiokafka.errors import (
    IllegalOperation,
    KafkaTimeoutError,
    ProducerClosed,
    UnknownTopicOrPartitionError,
)
from aiokclient.adapters.aiokafka.offsets import require_offsets
from aiokclient.adapters.aiokafka.partitioner import DefaultPartitioner
from aiokclient.adapters.aiokafka.private_names import PrivateProducerNames
from aiokclient.adapters.aiokafka.producer.futures import CallbackLines, SentBatch, SentRecord
from aiokclient.adapters.aiokafka.producer.message_accumulator import (
    BatchBuilder,
    unless_serialized,
)
from aiokclient.adapters.aiokafka.structs import OffsetAndMetadata, RecordMetadata
from aiokclient.errors import ApplicationRecoverableError
from aiokclient.errors import IllegalStateError as NativeStateError
from aiokclient.errors import KafkaError as NativeError

log = logging.getLogger(__name__)
_missing: Final = object()
_DEFAULT_PARTITIONER: Final = DefaultPartitioner()
_numbers = count(1)

Partitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
CODECS = ("gzip", "snappy", "lz4", "zstd", None)
RESEND_IN_ORDER = 1
"""The requests in flight without idempotence: a repeated one would change the order of records."""


class AIOKafkaProducer(PrivateProducerNames):
    """A producer with aiokafka's arguments, defaults, and calls. `native` is aiokclient's.

    `send` is a coroutine that gives a future. It waits for the topic's metadata, and while the
    memory for records is full.
    """

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str | None = None,
        metadata_max_age_ms: int = 300000,
        request_timeout_ms: int = 40000,
        api_version: str | None = None,
        acks: Any = _missing,
        key_serializer: Callable[[Any], bytes | None] | None = None,
        value_serializer: Callable[[Any], bytes | None] | None = None,
        compression_type: str | None = None,
        max_batch_size: int = 16384,
        partitioner: Partitioner = _DEFAULT_PARTITIONER,
        max_request_size: int = 1048576,
        linger_ms: int = 0,
        retry_backoff_ms: int = 100,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
        connections_max_idle_ms: int | None = 540000,
        enable_idempotence: bool = False,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60000,
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: AbstractTokenProvider | None = None,
    ) -> None:
        given = {**locals(), "client_id": client_id or f"aiokafka-producer-{next(_numbers)}"}
        refuse_deprecated(loop, api_version)
        if compression_type not in CODECS:
            raise ValueError(f"compression_type={compression_type!r} must be one of {CODECS}.")
        idempotent = enable_idempotence or transactional_id is not None
        acks = choose_acks(acks, idempotent)
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._max_batch_size = max_batch_size
        self._request_timeout_ms = request_timeout_ms
        self._transactional_id = transactional_id
        self._closed: bool | None = False
        self._known_topics: dict[str, set[int]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lines: CallbackLines | None = None
        self.client = AIOKafkaClient.of(ConnectionOptions.of(given))
        in_order: dict[str, int] = {}
        if not idempotent:
            in_order["max_in_flight_requests_per_connection"] = RESEND_IN_ORDER
        if transactional_id is not None:
            in_order["transaction_timeout_ms"] = transaction_timeout_ms
        self.native: Producer[Any, Any] = Producer(
            client=self.client.native,
            acks=acks,
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
            key_serializer=unless_serialized(key_serializer),
            value_serializer=unless_serialized(value_serializer),
            serialize_none=True,
            compression_type=compression_type or "none",
            batch_size=max_batch_size,
            max_request_size=max_request_size,
            linger_ms=int(linger_ms),
            max_block_ms=whole(request_timeout_ms),
            delivery_timeout_ms=whole(request_timeout_ms) + int(linger_ms),
            partitioner=None if isinstance(partitioner, DefaultPartitioner) else partitioner,
            **in_order,  # type: ignore[arg-type]
        )

    async def start(self) -> None:
        """Connect to the cluster. With a `transactional_id`, initialize its transactions.

        Raises KafkaConnectionError if no bootstrap server accepts a connection. A start that fails
        or is cancelled leaves nothing open, but `stop` must still be called.
        """
        self._loop = asyncio.get_running_loop()
        await self.client.bootstrap()
        with translated_errors(ProducerClosed):
            await self.native.start()

    async def flush(self) -> None:
        """Wait until all records that were sent before have their outcome.

        There are none before `start` and after `stop`.
        """
        if self._loop is None or self._closed:
            return
        with translated_errors(ProducerClosed):
            await self.native.flush()

    async def stop(self) -> None:
        """Wait until all records have their outcome, and close the connections.

        An open transaction is aborted. If that fails, or the producer has failed before, a warning
        is logged.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self.native.close()
        except NativeError as error:
            log.warning("The producer was closed with an error: %s", error)
        finally:
            await self.client.close()

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of a topic. Raises UnknownTopicOrPartitionError."""
        return await self.client._wait_on_metadata(topic)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> SentRecord:
        """Send a record, and return the future of its `RecordMetadata`.

        It waits for the metadata of a new topic, and while the memory for records is full, each for
        `request_timeout_ms`: UnknownTopicOrPartitionError and KafkaTimeoutError are raised after
        that. Raises MessageSizeTooLargeError (`max_request_size`), IllegalOperation for a record
        outside of a transaction, AssertionError for a partition that does not exist, and what a
        serializer raises. Cancelling the call while it waits does not send the record, unless it
        waits for room.
        """
        if value is None and key is None:
            raise AssertionError("Need at least one: key or value")
        if topic not in self._known_topics:
            await self._prepare_topic(topic)
        if partition is not None and partition not in self._known_topics[topic]:
            await self._require_partition(topic, partition)
        if self._transactional_id is not None:
            self._require_open_transaction()
        if timestamp_ms is not None:
            timestamp_ms = math.trunc(timestamp_ms)  # Programs pass time.time() * 1000.
        try:
            delivery = self.native.send(
                topic, value, key, partition, timestamp_ms, () if headers is None else headers
            )
        except NativeError as error:
            raise self._translate_refusal(error) from error
        if self.native.full:
            await self._wait_for_room()
        return SentRecord(delivery, self._lines or self._require_lines())

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> RecordMetadata | None:
        """Send a record, and return its metadata once it is acknowledged. Raises as `send`."""
        future = await self.send(topic, value, key, partition, timestamp_ms, headers)
        return await future

    def create_batch(self) -> BatchBuilder:
        """Return an empty batch, to be filled and passed to `send_batch`. Synchronous."""
        return BatchBuilder(
            self._max_batch_size,
            0,
            key_serializer=self._key_serializer,
            value_serializer=self._value_serializer,
        )

    async def send_batch(
        self, batch: BatchBuilder, topic: str, *, partition: int | None
    ) -> SentBatch:
        """Send the records of a batch, and return the future of the metadata of the first one.

        For None, the partitioner chooses a partition. The batch is closed. Its records are sent in
        order, but not necessarily in one batch. Raises the errors of `send`, and ValueError for an
        empty batch.
        """
        if topic not in self._known_topics:
            await self._prepare_topic(topic)
        chosen = partition
        if chosen is None:
            chosen = await self._choose_partition(topic)
        elif chosen not in self._known_topics[topic]:
            await self._require_partition(topic, chosen)
        if self._transactional_id is not None:
            self._require_open_transaction()
        if not batch.record_count():
            raise ValueError("The batch has no records.")
        try:
            deliveries = self.native.send_many(topic, batch.take_records(topic, chosen))
        except NativeError as error:
            raise self._translate_refusal(error) from error
        if self.native.full:
            await self._wait_for_room()
        return SentBatch(deliveries, self._require_lines())

    # -- transactions

    async def begin_transaction(self) -> None:
        """Open a transaction. Raises IllegalOperation without a `transactional_id`."""
        self._require_transactional()
        with translated_errors(ProducerClosed):
            await self.native.begin_transaction()

    async def commit_transaction(self) -> None:
        """Commit the open transaction, once all its records have their outcome."""
        self._require_transactional()
        with translated_errors(ProducerClosed):
            await self.native.commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort the open transaction. Its records are not delivered to committed readers."""
        self._require_transactional()
        with translated_errors(ProducerClosed):
            await self.native.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return a context that begins a transaction, and commits it or aborts it on an error."""
        return TransactionContext(self)

    async def send_offsets_to_transaction(
        self,
        offsets: dict[TopicPartition, int | tuple[int, str] | OffsetAndMetadata],
        group_id: str,
    ) -> None:
        """Commit offsets of a group with the open transaction.

        Raises IllegalOperation outside of a transaction, and ValueError or TypeError for offsets of
        another form than `AIOKafkaConsumer.commit` takes.
        """
        self._require_transactional()
        if not self._is_in_transaction():
            raise IllegalOperation("Not in the middle of a transaction.")
        if not group_id or not isinstance(group_id, str):
            raise ValueError(f"group_id={group_id!r} must be the name of a group.")
        wanted = {
            tp: NativeOffset(each.offset, each.metadata)
            for tp, each in require_offsets(offsets).items()
        }
        with translated_errors(ProducerClosed):
            await self.native.send_offsets_to_transaction(wanted, GroupMetadata(group_id))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    def __del__(self, _warnings: Any = warnings) -> None:
        loop = getattr(self, "_loop", None)
        if loop is None or self._closed:
            return
        _warnings.warn(f"Unclosed AIOKafkaProducer {self!r}", ResourceWarning, source=self)
        loop.call_exception_handler({"producer": self, "message": "Unclosed AIOKafkaProducer"})

    # -- steps of a send

    async def _prepare_topic(self, topic: str) -> None:
        """Wait until the metadata of a topic is known."""
        with translated_errors(ProducerClosed):
            try:
                await self.native.prepare(topic)
            except NativeError as error:
                cause = error.__cause__
                if isinstance(cause, NativeError) and cause.code == 3:
                    raise UnknownTopicOrPartitionError(topic) from error
                raise
        self._known_topics[topic] = set()

    async def _require_partition(self, topic: str, partition: int) -> None:
        """Raise AssertionError if a topic does not have a partition, which is looked up anew."""
        with translated_errors(ProducerClosed):
            found = await self.native.partitions_for(topic)
        self._known_topics[topic] = {each.index for each in found}
        if partition not in self._known_topics[topic]:
            raise AssertionError(f"Unrecognized partition {partition} of topic {topic}")

    async def _choose_partition(self, topic: str) -> int:
        """Return the partition that the partitioner chooses for a batch, which has no key."""
        with translated_errors(ProducerClosed):
            found = await self.native.partitions_for(topic)
        available = [each.index for each in found if each.leader >= 0]
        return self._partitioner(None, [each.index for each in found], available)

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                await self.native.drain()
        except TimeoutError as error:
            raise KafkaTimeoutError(
                "There was no room for the record within request_timeout_ms. It may still be sent."
            ) from error
        except NativeError as error:
            raise translate(error, ProducerClosed) from error

    def _translate_refusal(self, error: NativeError) -> BaseException:
        """Return the error for a record that the native producer refuses immediately."""
        if self._transactional_id is not None and isinstance(error, NativeStateError):
            return IllegalOperation(f"Can't send messages while not in transaction: {error}")
        if error.code == 3 and error.topic_partition is not None:
            return AssertionError(f"Unrecognized partition: {error}")
        return translate(error, ProducerClosed)

    def _require_lines(self) -> CallbackLines:
        if self._lines is None:
            self._lines = CallbackLines(asyncio.get_running_loop())
        return self._lines

    def _require_transactional(self) -> None:
        if self._transactional_id is None:
            raise IllegalOperation("Transactions need a transactional_id.")

    def _is_in_transaction(self) -> bool:
        last = self.native.last_transaction
        return last is not None and last.outcome is None

    def _require_open_transaction(self) -> None:
        if not self._is_in_transaction():
            raise IllegalOperation("Can't send messages while not in transaction")


class TransactionContext:
    """A transaction that a block of code begins and ends."""

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self._producer = producer

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self._producer.commit_transaction()
            return
        with translated_errors(ProducerClosed):
            try:
                await self._producer.native.abort_transaction()
            except ApplicationRecoverableError:
                pass  # The error of the block says more, and propagates.


def choose_acks(given: Any, idempotent: bool) -> int:
    """Return the value of `acks`, whose default depends on idempotence. Raises ValueError."""
    if given is _missing:
        return -1 if idempotent else 1
    if given not in (0, 1, -1, "all"):
        raise ValueError(f"acks={given!r} must be 0, 1, or 'all'.")
    if idempotent and given not in (-1, "all"):
        raise ValueError(f"acks={given!r} is not supported with enable_idempotence=True.")
    return -1 if given == "all" else int(given)
