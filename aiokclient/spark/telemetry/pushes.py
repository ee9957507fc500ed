"""The decoding of records with pushed metrics: who pushed, when, and what is wrong with the push.

The receivers of the library (`aiokclient.testing.TopicTelemetryReceiver`, and the plugin for
brokers in its tests) write one record for each push. The key is the client instance id, the value
is the OTLP payload, and the headers say who pushed it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import crc32

from aiokclient.spark.telemetry.otlp import LARGEST_TIME_US, BrokenPayloadError, parse, time_of

BUCKETS: Final = 64
"""The number of groups of client instances. Each group has a state of its own."""
DIGEST_BYTES: Final = 16
CLIENT: Final = (
    "client_instance_id",
    "client_id",
    "software_name",
    "software_version",
    "client_address",
)
"""The headers that each row of a push repeats."""
NO_TIMESTAMP_US: Final = -1_000
"""The time by which Spark represents a record without a timestamp."""
INTERVAL: Final = re.compile("[0-9]{1,10}")
"""The form of an accepted interval in milliseconds, which has at most 31 bits in the protocol."""


class Push(NamedTuple):
    """One push. All times are microseconds since 1970, and None if they are unknown."""

    received_us: int | None
    """The time of the record, by the clock of the receiver."""
    time_us: int | None
    """The newest time of the push's points, by the clock of the client."""
    event_us: int | None
    """The earlier of `received_us` and `time_us`.

    So a client whose clock is ahead does not make the pushes of other clients late.
    """
    instance_id: str | None
    client_id: str | None
    software: str | None
    version: str | None
    address: str | None
    terminating: bool
    """Whether this was the last push of a client, before it was closed."""
    interval_ms: int
    """The interval of the client's pushes, or 0 if the receiver did not write it."""
    partition: int
    offset: int
    bucket: int
    digest: bytes
    """A hash that two pushes share only if one is a copy of the other."""
    payload: bytes | None
    problem: str | None
    """The reason why the push is broken, or None."""


def read_push(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    received_us: int | None,
    partition: int,
    offset: int,
) -> Push:
    """Return the push in a record. Does not raise; `problem` says what is wrong with it."""
    texts = {name: (text or b"").decode("utf-8", "replace") for name, text in headers}
    instance = texts.get("client_instance_id") or (key or b"").decode("utf-8", "replace")
    time_us, problem = _time(value, sum(len(texts.get(name, "")) for name in CLIENT))
    if received_us == NO_TIMESTAMP_US:
        received_us = None
    elif received_us is not None and not 0 <= received_us <= LARGEST_TIME_US:
        problem = (
            f"The record has the timestamp {received_us // 1_000} ms, which is not between the "
            "years 1970 and 2262."
        )
        received_us = None
    if not instance:
        problem = "The record has no client instance id, neither as key nor as header."
    times = [each for each in (time_us, received_us) if each is not None]
    interval = texts.get("push_interval_ms", "")
    spread = instance.encode() if instance else str(offset).encode()
    return Push(
        received_us,
        time_us,
        min(times, default=None),
        instance or None,
        texts.get("client_id"),
        texts.get("software_name"),
        texts.get("software_version"),
        texts.get("client_address"),
        texts.get("terminating") == "true",
        int(interval) if INTERVAL.fullmatch(interval) else 0,
        partition,
        offset,
        crc32(spread) % BUCKETS,
        _digest(instance, value or b""),
        value,
        problem,
    )


def _time(payload: bytes | None, client_size: int) -> tuple[int | None, str | None]:
    """Return the time of a payload and None, or None and what is wrong with the payload."""
    if not payload:
        return None, "The record has no payload."
    try:
        return time_of(parse(payload, client_size)), None
    except BrokenPayloadError as error:
        return None, str(error)


def _digest(instance: str, payload: bytes) -> bytes:
    """Return the hash of a push.

    Two pushes of a client instance have different payloads, because each one contains its time.
    """
    person = blake2b(instance.encode(), digest_size=DIGEST_BYTES).digest()
    return blake2b(payload, digest_size=DIGEST_BYTES, person=person).digest()
