"""The record of a run: entries, which `RunChecks` checks in their order."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from aiokclient import TopicPartition


class Sent(NamedTuple):
    """A producer has sent the record with this number to a partition."""

    producer: int
    tp: TopicPartition
    sequence: int


class Acknowledged(NamedTuple):
    """The record was acknowledged at this offset."""

    producer: int
    tp: TopicPartition
    sequence: int
    offset: int


class Undelivered(NamedTuple):
    """The delivery of the record has failed."""

    producer: int
    tp: TopicPartition
    sequence: int
    error: str


class Read(NamedTuple):
    """A reader of a whole topic has received this record."""

    tp: TopicPartition
    offset: int
    value: bytes


class Ended(NamedTuple):
    """A transaction with one record for each partition has ended: committed, aborted, or unknown.

    An unknown outcome means that readers see all of the records or none.
    """

    producer: int
    sequence: int
    outcome: str


class Assigned(NamedTuple):
    """A member of a group was assigned partitions."""

    group: str
    member: str
    tps: Sequence[TopicPartition]


class Revoked(NamedTuple):
    """Partitions of a member were revoked, after it had finished processing their records."""

    group: str
    member: str
    tps: Sequence[TopicPartition]


class Lost(NamedTuple):
    """A member has lost partitions, which other members may own already."""

    group: str
    member: str
    tps: Sequence[TopicPartition]


class Delivered(NamedTuple):
    """A record was delivered to a member."""

    group: str
    member: str
    tp: TopicPartition
    offset: int


class Processed(NamedTuple):
    """A member has processed a record."""

    group: str
    member: str
    tp: TopicPartition
    offset: int


class Committed(NamedTuple):
    """The coordinator of a group reports this committed offset."""

    group: str
    tp: TopicPartition
    offset: int


class Called(NamedTuple):
    """A call has ended after so many seconds. The limit is `limit_s`."""

    what: str
    took_s: float
    limit_s: float


class Held(NamedTuple):
    """A callback has used so many seconds of processor time in the event loop."""

    what: str
    cpu_s: float


class Buffered(NamedTuple):
    """A measurement of the bytes that a client holds, and the most that it may hold."""

    what: str
    held: int
    limit: int


class Logged(NamedTuple):
    """A log record, an event, or another text of the library that an operator may see."""

    text: str


class Trouble(NamedTuple):
    """Something that must not occur at all, with the letter of the broken promise."""

    promise: str
    text: str


Entry: TypeAlias = (
    Sent
    | Acknowledged
    | Undelivered
    | Read
    | Ended
    | Assigned
    | Revoked
    | Lost
    | Delivered
    | Processed
    | Committed
    | Called
    | Held
    | Buffered
    | Logged
    | Trouble
)
