"""The client that producers, consumers and admins share, and the low-level requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Never, TypeVar, Unpack

from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.cluster.lifecycle.public_calls import watch_calls
from aiokclient.cluster.requests.attempts import PendingResponse
from aiokclient.cluster.targets import TARGETS, Broker, Coordinator, Leader, Target
from aiokclient.config.client import ClientConfig, ClientOptions
from aiokclient.config.problems import refuse_positional
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError, TopicValueError
from aiokclient.log.foreign_names import with_foreign_names
from aiokclient.protocol.schema import Request
from aiokclient.types import TopicPartition, is_integer, public_in, seconds, shortened, text_problem

if TYPE_CHECKING:
    from uuid import UUID

    from pyarrow import RecordBatch

    from aiokclient.consumer.ranges import RangeConnections
    from aiokclient.producer.transaction.detached import DetachedTransaction
    from aiokclient.producer.transaction.status import TransactionOutcome
    from aiokclient.protocol.schema import Response

R = TypeVar("R", bound="Response")

RANGE_BYTES = 52_428_800
"""The default of `fetch_max_bytes` of `Client.read_range`."""


@public_in("aiokclient")
@with_foreign_names
@watch_calls()
class Client(Parent):
    """Connections and metadata that producers, consumers and admins share.

        async with Client(bootstrap_servers="localhost:9092") as client:
            async with Producer(client=client) as producer: ...
            response = await client.request(messages.ListGroupsRequest(), to=AnyBroker())

    A client can be created outside of an event loop. `async with`, `await client.start()` or
    `await client` starts it. Closing a client closes its consumers, then its producers, then its
    admins. Of each kind, the newest is closed first. A close takes at most `close_timeout_ms`, or
    the timeout given to `close`, plus the time that the producers need to deliver their last
    records. Options have the names of Kafka's options, with `_` in place of `.`. An invalid option
    raises ConfigError.
    """

    def __init__(self, *wrong: Never, **options: Unpack[ClientOptions]) -> None:
        ClientConfig.hide_options(options)
        refuse_positional("Client", wrong)
        super().__init__(ClientConfig.build(options))
        self._ranges: RangeConnections | None = None

    async def request(self, message: Request[R], to: Target, *, timeout: float | None = None) -> R:
        """Send any request of the protocol and return the decoded response.

        `to` is the target: `AnyBroker()`, `Broker(id)`, `Controller()`, `Leader(topic, partition)`
        or `Coordinator(kind, key)`. The API version is negotiated with that broker. After a
        retriable error, the broker is looked up again and the request is repeated until `timeout`
        (in seconds, by default `default_api_timeout_ms`) has passed. Only a top-level error of the
        response is raised: errors of single topics or partitions are in the response.

        Raises ApiTimeoutError, whose cause is the last error; the broker's error if it is not
        retriable; UnsupportedVersionError if the broker is too old or too new; ClosedError; and
        TypeError for an invalid request, target or timeout. Cancelling the call abandons the
        response: the broker may still execute the request.
        """
        self._require_usable()
        _require(message, to, timeout)
        return await self._cluster.request(message, to, timeout=timeout)

    async def end_transaction(
        self, transaction: DetachedTransaction, commit: bool = True, timeout: float | None = None
    ) -> TransactionOutcome:
        """Commit or abort a transaction that its producer has left by `Transaction.detach`.

        Return what really happened: COMMITTED or ABORTED. A commit of a transaction that was
        aborted, by another call or by the coordinator after its timeout, returns ABORTED, and an
        abort of a committed one returns COMMITTED. The call may be repeated by any process; a
        repetition returns the outcome of the first one. `timeout` is in seconds (by default
        `default_api_timeout_ms`).

        Raises ApiTimeoutError if the coordinator has not answered in time, and a configuration
        error if a permission is missing. After either error, the call may be repeated. Raises an
        ApplicationRecoverableError if a newer producer with this transactional id has started: the
        transaction has ended, and was aborted unless an earlier call has committed it, but the
        coordinator no longer knows which. With `transaction.version` below 2 (before Kafka 4.0),
        the same error is raised after the transaction's timeout. Raises ClusterChangedError if the
        transaction was begun in another cluster; nothing is sent there. After a cancellation, it is
        unknown whether the transaction has ended; repeat the call.
        """
        self._require_usable()
        # Few programs use this, so the module is not imported with the client.
        from aiokclient.producer.transaction.detached import DetachedTransaction, end_detached

        if not isinstance(transaction, DetachedTransaction):
            raise ArgumentTypeError(
                f"{transaction!r} is not a DetachedTransaction. Pass the result of tx.detach()."
            )
        if not isinstance(commit, bool):
            raise ArgumentTypeError(
                f"commit={commit!r} is not a bool. Pass True to commit, or False to abort."
            )
        default_s = self._config.default_api_timeout_ms / 1000
        timeout_s = default_s if timeout is None else seconds(timeout)
        return await end_detached(self._cluster, transaction, commit=commit, timeout=timeout_s)

    def send(
        self, message: Request[R], to: Target, *, timeout: float | None = None
    ) -> PendingResponse[R]:
        """Send a request as `request` does, and return an awaitable handle. Synchronous.

        The handle can be awaited any number of times. It raises ClosedError if the client is closed
        before the response arrives.
        """
        self._require_usable()
        _require(message, to, timeout)
        return self._cluster.send(message, to, timeout=timeout)

    def read_range(
        self,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        columns: Sequence[str] | None = None,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        batch_rows: int = 10_000,
        fetch_max_bytes: int = RANGE_BYTES,
        timeout: float | None = None,
        topic_id: UUID | None = None,
    ) -> AsyncGenerator[RecordBatch, None]:
        """Return an iterator over the records of a partition from `start` to `end` - 1.

            async for batch in client.read_range(TopicPartition("orders", 0), 0, 1_000): ...

        The `pyarrow.RecordBatch`es have exactly the offsets of the range that exist, in their
        order, and at most `batch_rows` rows each. No group and no consumer are involved. `columns`
        selects columns of `Consumer.arrow_batches()`, in their order; the others are not decoded.
        With `read_committed`, records of aborted transactions are left out. While the application
        processes a batch, the next records are fetched on connections that only such iterators
        use. The fetched records and the batches converted from them take about
        `fetch_max_bytes` of memory; a single larger record batch of the log is read nevertheless.

        `timeout` is in seconds and limits each wait for progress, by default to
        `default_api_timeout_ms`. Within this time, lost connections and moved leaders are retried.
        The iterator ends as soon as it has passed the last offset. It also ends if compaction has
        removed all records up to `end`. If a transaction before `end` is open, the iterator
        delivers the records before the transaction and waits for its end. After `timeout`, it
        raises ApiTimeoutError, which names the transaction's offset.

        The call itself raises ArgumentTypeError for a wrong argument, and ImportError if pyarrow is
        not installed. The iterator raises

        - OffsetOutOfRangeError if records before `end` do not exist any more, or do not exist yet.
          The iterator has delivered all records before the error's `missing_start`. Its
          `missing_end` is the offset at which the log continues, or the end of the range.
        - UnknownTopicOrPartitionError; and UnknownTopicIdError if the topic was recreated in the
          meantime, or has another id than `topic_id`.
        - ClusterChangedError if the client has moved to another cluster in the meantime.
        - CorruptBatchError for a batch that is still damaged when it is fetched again.
        - ResponseTooLargeError for a batch that exceeds `receive_message_max_bytes`.
        - ApiTimeoutError (its cause is the last error), ClosedError, and errors that waiting does
          not correct, such as those of authorization.

        After an error, a cancellation, or `aclose()` the iterator has ended, and the client can
        still be used.
        """
        self._require_usable()
        # Clients without ranges do not import the consumer.
        from aiokclient.consumer.ranges import RangeConnections, RangeRequest, read

        request = RangeRequest.of(
            tp,
            start,
            end,
            columns=columns,
            isolation_level=isolation_level,
            batch_rows=batch_rows,
            fetch_max_bytes=fetch_max_bytes,
            timeout=self._get_timeout_s(timeout),
            topic_id=topic_id,
        )
        if self._ranges is None:
            self._ranges = RangeConnections()
        return read(self._cluster, self._ranges, request, self._require_usable)


def _require(message: Any, to: Any, timeout: Any) -> None:
    if not isinstance(message, Request):
        raise TypeError(f"{message!r} is not a request of aiokclient.protocol.messages.")
    if not isinstance(to, TARGETS):
        raise TypeError(
            f"{to!r} is not a target. Use AnyBroker(), Broker(id), Controller(), "
            "Leader(topic, partition) or Coordinator(kind, key)."
        )
    _require_target(to)
    if timeout is not None:
        seconds(timeout)


def _require_target(to: Any) -> None:
    """Raise an error for a target with an id, a name, or a number that no broker can have."""
    match to:
        case Broker(number) | Leader(_, number) if not is_integer(number):
            raise ArgumentTypeError(
                f"{to!r}: {number!r} is not the number of a broker or partition."
            )
        case Leader(name, _) | Coordinator(_, name) if not isinstance(name, str):
            raise ArgumentTypeError(f"{to!r}: {name!r} is not a name. Pass a str.")
        case Leader(name, _) if problem := text_problem(name):
            raise TopicValueError(f"{shortened(name)} cannot be a topic. {problem}")
        case Coordinator(_, name) if problem := text_problem(name):
            raise ArgumentValueError(
                f"{shortened(name)} cannot be the key of a coordinator. {problem}"
            )
