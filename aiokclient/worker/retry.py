"""The outcome for a record whose handler failed: the options of the program, and one table.

`choose_outcome` is the table. It decides by the exception of a run, and by how often the record has
run already:

    exception                     runs left                        none left
    in `always`, or no schema     AGAIN, without limit             -
    Reject, RecordError           -                                given up
    in `never`, or not in `on`    -                                given up
    RetryLater(delay)             AGAIN after its delay, or TOPIC  given up
    any other                     AGAIN after a backoff, or TOPIC  given up

A record that is given up goes to the dead letters (DEAD_LETTER). If there are none, the run of the
worker ends with the exception (STOP), or the record is skipped (SKIP), as `on_giving_up` says.

An exception in `always` is an outage of something that all records need, not a fault of the record.
Its runs do not count, it never leads to a retry topic or a dead letter, and the lane stands.

`attempts` counts runs, the first one included.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from aiokclient.errors import RecordError, SchemaRegistryUnavailableError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.types import ConsumerRecord, public_in, seconds
from aiokclient.types.named_tuple import NamedTuple

Errors = tuple[type[BaseException], ...]
MOST_DOUBLINGS = 64
"""The exponent is bounded so that an endless retry does not overflow the float."""


@public_in("aiokclient.worker")
class Exponential:
    """Delays that double from `initial` seconds up to `max` seconds.

    Each delay is multiplied by a random factor from `1 - jitter` to `1 + jitter`, and is at most
    `max`. Raises ValueError unless `0 <= initial <= max` and `0 <= jitter <= 1`.
    """

    __slots__ = ("initial", "jitter", "max")

    def __init__(self, initial: float = 0.2, *, max: float = 30.0, jitter: float = 0.5) -> None:
        self.initial = seconds(initial, "initial")
        self.max = seconds(max, "max")
        self.jitter = jitter
        if not 0 <= self.initial <= self.max < math.inf:
            raise ArgumentValueError(
                f"The delays of Exponential({initial}, max={max}) must be at least 0 s, and the "
                "first one at most the longest one."
            )
        if not 0 <= jitter <= 1:
            raise ArgumentValueError(f"jitter must be from 0 to 1, not {jitter}.")

    def __repr__(self) -> str:
        return f"Exponential({self.initial}, max={self.max}, jitter={self.jitter})"

    def compute_delay_s(self, failures: int, rng: random.Random) -> float:
        """Return the seconds to wait after this number of earlier failures."""
        delay = min(self.initial * 2.0 ** min(failures, MOST_DOUBLINGS), self.max)
        return min(delay * rng.uniform(1 - self.jitter, 1 + self.jitter), self.max)


@public_in("aiokclient.worker")
class Retry:
    """The rules by which a worker repeats records whose handler failed.

        Retry(attempts=5, backoff=Exponential(1, max=60), never=(ValueError,))

    `attempts` is the number of runs, the first one included; 1 means no retry. Only exceptions in
    `on` and not in `never` are retried. Those in `always`, such as `ConnectionError`, mean that
    something is unavailable that all records need: they are retried without limit, and lead to no
    dead letter.

    Without `topic`, a record is retried in place, after the backoff. Meanwhile the later records of
    its lane wait. With `topic`, it is sent to a retry topic, and its lane goes on, so that its
    order is lost. `topic` is the name of one topic, which all failures go to, each after the
    backoff; or a list of (seconds, name), of which the n-th failure takes the n-th entry, and
    further ones take the last. `create` creates missing retry topics.

    Raises ValueError for values out of range, and TypeError for a wrong type.
    """

    __slots__ = ("always", "attempts", "backoff", "create", "never", "on", "topic")

    def __init__(
        self,
        attempts: int = 3,
        backoff: Exponential | None = None,
        on: type[BaseException] | Sequence[type[BaseException]] = (Exception,),
        never: type[BaseException] | Sequence[type[BaseException]] = (),
        always: type[BaseException] | Sequence[type[BaseException]] = (),
        topic: str | Sequence[tuple[float, str]] | None = None,
        create: bool = False,
    ) -> None:
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            raise ArgumentTypeError(f"attempts must be an int, not {attempts!r}.")
        if attempts < 1:
            raise ArgumentValueError(
                f"attempts must be at least 1, not {attempts}: it counts runs, the first included."
            )
        if backoff is not None and not isinstance(backoff, Exponential):
            raise ArgumentTypeError(f"backoff must be an Exponential, not {backoff!r}.")
        self.attempts = attempts
        self.backoff = Exponential() if backoff is None else backoff
        self.on = _as_errors("on", on)
        self.never = _as_errors("never", never)
        self.always = _as_errors("always", always)
        self.topic = _as_topic(topic)
        self.create = create

    def __repr__(self) -> str:
        names = [name for name in self.__slots__ if name not in ("attempts", "backoff")]
        given = [f"{name}={getattr(self, name)!r}" for name in sorted(names) if getattr(self, name)]
        return f"Retry({', '.join([str(self.attempts), repr(self.backoff), *given])})"

    def is_outage(self, error: BaseException) -> bool:
        """Return whether an exception says nothing about its record. Synchronous."""
        if isinstance(error, (UnpreparedError, SchemaRegistryUnavailableError, *self.always)):
            return True
        # What a handler has sent could not be serialized, because there was no schema.
        return isinstance(error.__cause__, SchemaRegistryUnavailableError)

    @property
    def topics(self) -> tuple[str, ...]:
        """The names of the retry topics, each once."""
        if self.topic is None:
            return ()
        if isinstance(self.topic, str):
            return (self.topic,)
        return tuple(dict.fromkeys(name for _, name in self.topic))


@public_in("aiokclient.worker")
class RetryLater(Exception):
    """An exception by which a handler requests another run after `delay` seconds.

    The run that raises it counts as one of the `attempts`.
    """

    def __init__(self, delay: float) -> None:
        self.delay = seconds(delay, "delay")
        if not 0 <= self.delay < math.inf:
            raise ArgumentValueError(f"delay must be at least 0 seconds, not {delay}.")
        super().__init__(f"The handler requests another run after {delay} s.")


@public_in("aiokclient.worker")
class Reject(Exception):
    """An exception by which a handler gives up a record at once, with a reason as text."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "The handler rejected the record.")


@public_in("aiokclient.worker")
class Batch:
    """Makes a worker call its handler with a list of records of one lane.

    A list has at most `max_records`, and is handled at the latest `max_wait` seconds after its
    first record was available. Raises ValueError for values out of range.
    """

    __slots__ = ("max_records", "max_wait")

    def __init__(self, max_records: int = 500, max_wait: float = 0.1) -> None:
        if isinstance(max_records, bool) or not isinstance(max_records, int):
            raise ArgumentTypeError(f"max_records must be an int, not {max_records!r}.")
        if max_records < 1:
            raise ArgumentValueError(f"max_records must be at least 1, not {max_records}.")
        self.max_records = max_records
        self.max_wait = seconds(max_wait, "max_wait")
        if not 0 <= self.max_wait < math.inf:
            raise ArgumentValueError(f"max_wait must be at least 0 seconds, not {max_wait}.")

    def __repr__(self) -> str:
        return f"Batch(max_records={self.max_records}, max_wait={self.max_wait})"


@public_in("aiokclient.worker")
class BatchError(Exception):
    """An exception by which the handler of a batch names the records that failed, with errors.

        raise BatchError({record: error, other: other_error})

    All other records of the batch are done. `errors` may also be a sequence of pairs, because
    records with unhashable keys or values cannot be keys of a mapping.
    """

    def __init__(
        self,
        errors: Mapping[ConsumerRecord[Any, Any], BaseException]
        | Sequence[tuple[ConsumerRecord[Any, Any], BaseException]],
    ) -> None:
        pairs = list(errors.items()) if isinstance(errors, Mapping) else list(errors)
        self.errors: tuple[tuple[ConsumerRecord[Any, Any], BaseException], ...] = tuple(pairs)
        super().__init__(f"{len(pairs)} records of the batch failed.")

    def find_errors(self, records: Sequence[Any]) -> dict[Any, BaseException]:
        """Return the errors of these records, as they were fetched, that are named here."""
        named = {(each.topic, each.partition, each.offset): error for each, error in self.errors}
        found = {each: named.get((each.topic, each.partition, each.offset)) for each in records}
        return {record: error for record, error in found.items() if error is not None}


class UnpreparedError(Exception):
    """The exception of a run whose records cannot be deserialized now, for want of their schemas.

    It is an outage, whatever `Retry.always` says.
    """


def join_errors(
    entries: Sequence[tuple[Any, Any]],
    failure: BaseException | None,
    unreadable: Mapping[Any, BaseException],
) -> BaseException:
    """Return the exception of a batch of which some records could not be deserialized.

    `failure` is the exception of the handler, which got the others.
    """
    if isinstance(failure, BatchError):
        return BatchError([*failure.errors, *unreadable.items()])
    if failure is None or not isinstance(failure, Exception):
        return failure or BatchError(unreadable)
    return BatchError([(each, unreadable.get(each, failure)) for _, each in entries])


@public_in("aiokclient.worker")
@dataclass(frozen=True, slots=True)
class Failure:
    """The last failure of a record, for its retry record or its dead letter."""

    error: BaseException
    """The exception of the last run."""
    attempts: int
    """The number of runs, over retry topics, too."""
    failed_at_ms: int
    """The time of the last failure, in ms since the epoch, by the clock of this process."""
    group_id: str | None
    """The group of the consumer, or None if it has no group."""


class Outcome(Enum):
    """The next step for a record whose run failed."""

    AGAIN = auto()
    """It runs again after a delay, in its lane."""
    TOPIC = auto()
    """It is sent to a retry topic."""
    DEAD_LETTER = auto()
    """It is sent to the dead letters."""
    SKIP = auto()
    """It is logged, and counts as done."""
    STOP = auto()
    """The run of the worker ends with the exception."""


class Verdict(NamedTuple):
    """The outcome of a failed run, with the delay in seconds and the topic that it needs."""

    outcome: Outcome
    delay_s: float = 0.0
    topic: str = ""


def choose_outcome(
    error: BaseException,
    attempts: int,
    outages: int,
    retry: Retry,
    rng: random.Random,
    *,
    has_dead_letters: bool,
    skips: bool,
) -> Verdict:
    """Return what happens to a record after a failed run.

    `attempts` is the number of runs that count, this one included, and `outages` the number of
    consecutive ones that do not, without this one. `skips` says that `on_giving_up` is "skip".
    """
    if retry.is_outage(error):
        return Verdict(Outcome.AGAIN, retry.backoff.compute_delay_s(outages, rng))
    if _may_retry(error, retry) and attempts < retry.attempts:
        later = error.delay if isinstance(error, RetryLater) else None
        if retry.topic is None:
            pause = retry.backoff.compute_delay_s(attempts - 1, rng)
            return Verdict(Outcome.AGAIN, pause if later is None else later)
        if isinstance(retry.topic, str):
            delay, topic = retry.backoff.compute_delay_s(attempts - 1, rng), retry.topic
        else:
            delay, topic = retry.topic[min(attempts, len(retry.topic)) - 1]
        return Verdict(Outcome.TOPIC, delay if later is None else later, topic)
    if has_dead_letters:
        return Verdict(Outcome.DEAD_LETTER)
    return Verdict(Outcome.SKIP if skips else Outcome.STOP)


def describe_end(place: str, attempts: int, error: BaseException, what: str) -> str:
    """Return the log's text for a record that is given up, or is sent to a retry topic."""
    if isinstance(error, RecordError):  # No handler was called.
        return f"{place} could not be deserialized, and the record {what}: {error.brief}"
    return f"The handler of {place} failed in run {attempts}, and the record {what}: {error!r}"


def _may_retry(error: BaseException, retry: Retry) -> bool:
    if isinstance(error, (Reject, RecordError, *retry.never)):
        return False
    if isinstance(error, RetryLater):
        return True
    # A handler whose own task or scope was cancelled has failed as any other.
    return isinstance(error, (*retry.on, asyncio.CancelledError))


def _as_errors(name: str, given: Any) -> Errors:
    errors = (given,) if isinstance(given, type) else tuple(given)
    for each in errors:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise ArgumentTypeError(f"{name} must have classes of exceptions, not {each!r}.")
    return errors


def _as_topic(given: Any) -> str | tuple[tuple[float, str], ...] | None:
    if given is None or isinstance(given, str):
        return given
    entries: list[tuple[float, str]] = []
    for entry in given:
        if not (isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[1], str)):
            raise ArgumentTypeError(
                f"topic must be the name of a topic or a list of (seconds, name), and {entry!r} is "
                "no such pair."
            )
        delay = seconds(entry[0], "the delay of a retry topic")
        if not 0 <= delay < math.inf:
            raise ArgumentValueError(f"The delay of a retry topic must be at least 0, not {delay}.")
        entries.append((delay, entry[1]))
    if not entries:
        raise ArgumentValueError("topic must have at least one (seconds, name).")
    return tuple(entries)
