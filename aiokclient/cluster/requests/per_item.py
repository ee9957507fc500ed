"""The loop over the items of an operation: topics, partitions, groups, configuration resources.

A response has a result for each item. Some items succeed, some fail permanently, and only the
others are retried:

    left ──request──▶ response ──▶ found            done
      ▲                        ├─▶ permanent error  `refuse(item, error)`
      └────── the delay ───────┴─▶ retriable error  retried

- `PerItem` is this loop. It owns the remaining items, and the policy decides about each error.
- `ItemResults` collects the results of one round of requests.
- `ask_in_parallel` sends one request for each target of a round at the same time, for example to
  each leader of partitions, by which `group_by_leader` groups them.

An error of a whole request counts as an error of each of its items.

The lookups of a consumer's positions and initial offsets do not use the loop: they run as long as
the consumer, partitions come and go meanwhile, and each partition counts its own failures
(`consumer/state/subscription.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from typing import Generic, TypeAlias, TypeVar

from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.cluster.requests.attempts import LastAnswer, RefusalLog, is_refusal
from aiokclient.errors import ApiTimeoutError, KafkaError, error_for
from aiokclient.policy import Attempts, Decision, Scope
from aiokclient.scopes import new_group
from aiokclient.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
Part = TypeVar("Part", bound=Iterable[object])

LASTING_S = 1.0
"""Seconds after which refusals are logged. Delays between attempts can be much shorter."""

Errors: TypeAlias = Mapping[K, KafkaError]
Ask: TypeAlias = Callable[[list[K]], Awaitable[Errors[K]]]
"""A function that sends the requests of one round for items, and returns their errors."""

Refresh: TypeAlias = Callable[[K, KafkaError], bool]
"""A function that refreshes the metadata or the coordinator of an item after an error.

It returns whether to retry the item.
"""

Refuse: TypeAlias = Callable[[K, KafkaError], bool | None]
"""A function for the error of an item that is not retried. An error it raises ends the loop.

If it returns true, the item is retried nevertheless, without a delay.
"""

Final: TypeAlias = Callable[[K, KafkaError], bool]
"""A function that returns whether an error is final for an item, whatever the policy says."""


class ItemResults(Generic[K, V]):
    """The results of one round: a value or an error for each item."""

    __slots__ = ("errors", "found_values")

    def __init__(self) -> None:
        self.found_values: dict[K, V] = {}
        self.errors: dict[K, KafkaError] = {}

    def put_item(self, item: K, error: KafkaError | None, value: V) -> None:
        """Record the error of an item, or its value if there is no error."""
        if error is None:
            self.found_values[item] = value
        else:
            self.errors[item] = error

    def fail_item(self, item: K, error: KafkaError) -> None:
        """Record the error of an item, instead of its value if it has one."""
        self.found_values.pop(item, None)
        self.errors[item] = error

    def put_partition(
        self: ItemResults[TopicPartition, V],
        tp: TopicPartition,
        code: int,
        api: str,
        broker: int,
        value: V,
    ) -> None:
        """Record the result of a partition in a response: an error code, or 0 and a value."""
        self.put_item(tp, error_for(code, api=api, broker=broker, topic_partition=tp), value)

    def fail_missing(self, items: Iterable[K], error: Callable[[K], KafkaError]) -> None:
        """Record an error for each of these items that has no result."""
        for item in items:
            if item not in self.found_values and item not in self.errors:
                self.errors[item] = error(item)


class PerItem(Generic[K]):
    """The items of one operation that have no final result yet.

    `retry` counts the rounds. `refusals` logs errors after which items are repeated. `last` gets
    the errors of the rounds; a caller passes its own to record errors of single requests as well.
    """

    def __init__(
        self,
        items: Iterable[K],
        retry: Attempts,
        scope: Scope,
        *,
        refusals: RefusalLog | None = None,
        last: LastAnswer | None = None,
    ) -> None:
        self.remaining = list(dict.fromkeys(items))
        """The remaining items, in their order."""
        self._last = last or LastAnswer()
        self._refusals = refusals
        self._began_at = -math.inf
        self._retry = retry
        self._scope = scope

    @property
    def last_error(self) -> KafkaError | None:
        """The first error of the last round that had one. Silence does not replace a refusal."""
        return self._last.error

    async def request_items(
        self,
        ask: Ask[K],
        *,
        refresh: Refresh[K],
        refuse: Refuse[K] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Request the items until none is left, with a backoff delay between the rounds.

        `refresh` and `refuse` are those of `record_errors`. `check` is called after each round that
        had errors. An error that one of these functions raises ends the loop.
        """
        while self.remaining:
            failed = await ask(self.remaining)
            if failed and check is not None:
                check()
            delay_s = self.record_errors(failed, refresh=refresh, refuse=refuse)
            if self.remaining:
                await asyncio.sleep(delay_s)

    def record_errors(
        self,
        failed: Errors[K],
        *,
        refresh: Refresh[K],
        refuse: Refuse[K] | None = None,
        is_final: Final[K] | None = None,
    ) -> float:
        """Record the errors of a round, and return the seconds to wait before the next one.

        Only the items that will be retried remain in `left`. Without `refuse`, the others are
        dropped.
        """
        self.remaining = [item for item in self.remaining if item in failed]
        again: dict[K, None] = {}
        delay_s = 0.0
        if failed:
            errors = list(failed.values())
            self._last.note_error(next(filter(is_refusal, errors), errors[0]))
        for item, error in failed.items():
            final = is_final is not None and is_final(item, error)
            item_s = None if final else self._compute_delay_s(item, error, refresh)
            if item_s is not None:
                again[item] = None
                delay_s = max(delay_s, item_s)
            elif refuse is not None and refuse(item, error):
                again[item] = None
        self._retry.next_attempt()
        self.remaining = [item for item in self.remaining if item in again]
        self._log_refusals(failed)
        return delay_s

    def _log_refusals(self, failed: Errors[K]) -> None:
        """Log a refusal after which items are repeated, if refusals last."""
        if self._refusals is None:
            return
        now = asyncio.get_running_loop().time()
        if self._retry.attempt == 1:
            self._began_at = now
        if now - self._began_at >= LASTING_S:
            repeated = (failed[item] for item in self.remaining)
            self._refusals.log_refusal(
                next(filter(is_refusal, repeated), None), self._retry.attempt
            )

    def drop_items(self, items: Container[K]) -> None:
        """Remove items that need no further attempt."""
        self.remaining = [item for item in self.remaining if item not in items]

    def _compute_delay_s(self, item: K, error: KafkaError, refresh: Refresh[K]) -> float | None:
        """Return the seconds to wait before the item is retried; None if it is not."""
        action = self._retry.decide(error, self._scope)
        if action.decision is Decision.REFRESH_AND_RETRY and not refresh(item, error):
            return None
        return action.delay_s if action.again else None


async def ask_within(
    timeout: float,
    partitions: Iterable[TopicPartition],
    ask: Ask[TopicPartition],
    retry: Attempts,
    scope: Scope,
    *,
    refresh: Refresh[TopicPartition],
    check: Callable[[], None],
    api: str,
    needed: str,
    again: Refuse[TopicPartition] = lambda tp, error: False,
    refusals: RefusalLog | None = None,
    last: LastAnswer | None = None,
) -> None:
    """Run the loop until every partition has succeeded, within `timeout` seconds.

    Raises the first error that is not retried, and ApiTimeoutError after the timeout. The
    ApiTimeoutError names the first remaining partition, and what was `needed` of it. Its cause is
    the last error. If `again(tp, error)` returns true for an error that is not retried, the
    partition is requested again without a delay. `refusals` and `last` are those of `PerItem`.
    """

    def refuse(tp: TopicPartition, error: KafkaError) -> bool:
        if again(tp, error):
            return True
        raise TimeoutError if retry.remaining_s <= 0 else error

    loop = PerItem(partitions, retry, scope, refusals=refusals, last=last)
    try:
        async with asyncio.timeout(None if timeout == math.inf else timeout):
            await loop.request_items(ask, refresh=refresh, refuse=refuse, check=check)
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise
        text = f"The brokers returned no {needed} within {timeout:.1f} s."
        missing = next(iter(loop.remaining), None)
        raise ApiTimeoutError(text, api=api, topic_partition=missing) from loop.last_error


def group_by_leader(
    metadata: ClusterMetadata, items: Mapping[TopicPartition, V]
) -> dict[int, dict[TopicPartition, V]]:
    """Return the items of partitions for each leader; the leader is -1 where none is known."""
    leaders: dict[int, dict[TopicPartition, V]] = {}
    for tp, item in items.items():
        leaders.setdefault(metadata.find_leader(*tp), {})[tp] = item
    return leaders


async def ask_in_parallel(
    parts: Mapping[T, Part],
    ask: Callable[[T, Part], Awaitable[None]],
    failed: Callable[[Part, KafkaError], object],
) -> None:
    """Send requests to several targets at the same time, to each for its part of the items.

    `failed(part, error)` is called if the request to a target fails. The others continue.
    """

    async def ask_one(target: T, part: Part) -> None:
        try:
            await ask(target, part)
        except KafkaError as error:
            failed(part, error)

    async with new_group() as tasks:
        for target, part in parts.items():
            tasks.start_soon(ask_one, target, part)
