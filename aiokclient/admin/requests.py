"""Requests for several items, and the retries of such requests, for all admin calls.

A response has a result for each item. If the error of an item is retriable (such as a moved
controller, a timeout, or a quota), the request is repeated for such items only, until the timeout.
The loop is in `cluster.per_item`. A request that fails as a whole was already repeated by the
cluster client.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, TypeVar

from aiokclient.admin.results import Results
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.lifecycle import Lifecycle
from aiokclient.cluster.lifecycle.ownership import Weakly
from aiokclient.cluster.metadata.snapshot import BrokerInfo, ClusterMetadata
from aiokclient.cluster.requests.attempts import Check, LastAnswer, is_refusal
from aiokclient.cluster.requests.per_item import PerItem, ask_in_parallel, group_by_leader
from aiokclient.cluster.targets import Broker, Leader, Target
from aiokclient.errors import (
    ApiTimeoutError,
    KafkaError,
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RefreshRetriableError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
    UsageError,
    error_for,
)
from aiokclient.log.kept_errors import bare
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.protocol.schema import Request, Response
from aiokclient.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R", bound=Response)
T = TypeVar("T")
AT_ONCE: Final = 500
"""The most topics or partitions in one request of a search through many."""
Item = TypeVar("Item")

Answers: TypeAlias = Mapping[K, V | KafkaError]
Ask: TypeAlias = Callable[[dict[K, Item], float], Awaitable[Answers[K, V]]]
"""A function that sends one request for items, with a timeout, and returns their results."""

AskOne: TypeAlias = Callable[[dict[K, Item], T], Awaitable[Answers[K, V]]]
"""A function that sends one request for items to one target, and returns their results."""


LONGEST_CHECK_S = 5.0


def compute_check_s(timeout: float) -> float:
    """Return the seconds that a call may wait for what it checks before it sends its requests.

    A partition may have no leader, and a broker may not answer. The call then sends its requests
    without the check.
    """
    return min(timeout / 2, LONGEST_CHECK_S)


class AdminRequests:
    """The requests of one admin client. It holds only a weak reference to the client."""

    _admin = Weakly()

    def __init__(self, admin: Lifecycle) -> None:
        config = admin._config
        self._admin = admin
        self.patience_s = config.request_timeout_ms / 1000
        """Seconds to wait for one broker before checking whether the broker still exists."""
        self.uses_controllers: bool = config.uses_controllers
        """Whether the client is connected to controllers instead of brokers."""
        self._backoff = Backoff.of(config)

    @property
    def cluster(self) -> ClusterClient:
        """The cluster client, with its connections and metadata. The admin client must be open."""
        cluster: ClusterClient = self._admin._cluster
        return cluster

    def require_open(self) -> None:
        """Raise an error if the client is not open, or if another event loop uses it."""
        self._admin._require_usable()

    def compute_deadline(self, timeout: float | None) -> float:
        """Return the deadline of a call with this timeout, on the monotonic clock."""
        return float(self.cluster.clock.monotonic() + self._admin._get_timeout_s(timeout))

    def compute_remaining_s(self, deadline: float) -> float:
        """Return the seconds that remain until a deadline, at least 0."""
        return float(max(deadline - self.cluster.clock.monotonic(), 0.0))

    def compute_broker_timeout_ms(self, remaining_s: float) -> int:
        """Return a timeout for the broker that is shorter than the client's own wait."""
        waiting = min(max(remaining_s, 0.0), self.patience_s)
        return max(int(waiting * 900), 1)

    async def send_request(
        self,
        message: Any,
        to: Target,
        timeout: float | None,
        failed: Callable[[KafkaError], None] = lambda error: None,
        check: Check | None = None,
    ) -> Any:
        """Send a request, with the retries of the cluster client.

        `failed(error)` is called for each attempt that was sent and failed. `check` is that of
        `ClusterClient.request`.
        """
        self.require_open()
        return await self.cluster.request(
            message, to, timeout=timeout, scope=Scope.ADMIN, failed=failed, check=check
        )

    async def ask_items(
        self,
        items: Mapping[K, Item],
        ask: Ask[K, Item, V],
        timeout: float | None,
        *,
        retry_on_quota_violation: bool = True,
    ) -> Results[K, V]:
        """Request all items, and repeat those with a retriable error until the timeout.

        If `retry_on_quota_violation` is false, those that a quota has refused are not repeated.
        """
        self.require_open()
        retry = Attempts(self.compute_deadline(timeout), self._backoff, self.cluster.clock)
        results: dict[K, Any] = dict.fromkeys(items)
        refused: dict[K, KafkaError] = {}

        async def ask_left(left: list[K]) -> dict[K, KafkaError]:
            answers = await ask({key: items[key] for key in left}, max(retry.remaining_s, 0.0))
            for key in left:
                answer = answers[key] if key in answers else _make_missing_error(key)
                results[key] = _choose_answer(answer, results[key])
            errors = {key: each for key in left if isinstance(each := results[key], KafkaError)}
            refused.update({key: each for key, each in errors.items() if is_refusal(each)})
            if not retry_on_quota_violation:
                quota = ThrottlingQuotaExceededError.code
                errors = {key: each for key, each in errors.items() if each.code != quota}
            return errors

        def refuse(key: K, error: KafkaError) -> None:
            if error.retriable and retry.remaining_s <= 0:
                results[key] = _make_timeout_error(
                    error if is_refusal(error) else refused.get(key, error)
                )

        refusals = self.cluster.refusals
        loop = PerItem(items, retry, Scope.ADMIN, refusals=refusals)
        try:
            await loop.request_items(ask_left, refresh=self._request_metadata, refuse=refuse)
        except UsageError:
            raise
        except KafkaError as error:
            bare(error)
            results.update(
                {
                    key: _choose_answer(error, refused.get(key, results[key]))
                    for key in loop.remaining
                }
            )
        return Results(results, self.cluster.make_log("admin"))

    def join_results(
        self, keys: Iterable[K], results: Results[K, V], refused: Mapping[K, KafkaError]
    ) -> Results[K, V]:
        """Return the results of items, with the errors of those that were not sent, in order."""
        if not refused:
            return results
        found: dict[K, V | KafkaError] = {**results.succeeded, **results.errors, **refused}
        return Results({key: found[key] for key in keys}, self.cluster.make_log("admin"))

    def _request_metadata(self, key: object, error: KafkaError) -> bool:
        self.cluster.updater.request_update()
        return True

    async def ask_coordinators(
        self,
        keys: Mapping[str, Item],
        ask: Callable[[dict[str, Item], BrokerInfo, float], Awaitable[Answers[str, V]]],
        timeout: float | None,
        *,
        kind: str = "group",
    ) -> Results[str, V]:
        """Send the request for each key to its coordinator, which every attempt locates again.

        The keys are the ids of groups, or with kind "transaction" transactional ids.
        """

        async def ask_each(items: dict[str, Item], remaining: float) -> Answers[str, V]:
            answers: dict[str, V | KafkaError] = {}
            coordinators: dict[BrokerInfo, dict[str, Item]] = {}
            try:
                async with asyncio.timeout(remaining):
                    found = await self.cluster.coordinators.locate_coordinators(kind, items)
            except TimeoutError:
                text = f"No broker named the coordinators within {remaining:.1f} s."
                cause = self.cluster.find_last_error()
                raise ApiTimeoutError(text, api="FindCoordinator") from cause
            for key, broker in found.items():
                if isinstance(broker, KafkaError):
                    answers[key] = broker
                else:
                    coordinators.setdefault(broker, {})[key] = items[key]
            bound = min(remaining, self.patience_s)

            async def ask_one(some: dict[str, Item], to: BrokerInfo) -> Answers[str, V]:
                async with self._end_if_unlisted(to.node_id):
                    return await ask(some, to, bound)

            answers.update(await ask_targets(coordinators, ask_one))
            return answers

        return await self.ask_items(keys, ask_each, timeout)

    async def ask_leaders(
        self,
        partitions: Mapping[TopicPartition, Item],
        ask: Callable[[dict[TopicPartition, Item], Leader, float], Awaitable[Any]],
        api: str,
        timeout: float | None,
    ) -> Results[TopicPartition, Any]:
        """Send the request for each partition to its leader, which every attempt looks up again.

        `ask` gets the partitions of one leader. `api` is the name of the request in errors.
        """

        async def ask_each(
            items: dict[TopicPartition, Item], remaining: float
        ) -> Answers[TopicPartition, Any]:
            topics = list(dict.fromkeys(tp.topic for tp in items))
            snapshot = await self.cluster.updater.refresh(topics, timeout=remaining, at_once=True)
            answers: dict[TopicPartition, Any] = {
                tp: error
                for tp in items
                if (error := _find_leader_problem(snapshot, tp, api)) is not None
            }
            led = {tp: item for tp, item in items.items() if tp not in answers}
            leaders = group_by_leader(snapshot, led)
            answers.update(
                await ask_targets(
                    {Leader(*next(iter(some))): some for some in leaders.values()},
                    lambda some, to: ask(some, to, remaining),
                )
            )
            return answers

        return await self.ask_items(partitions, ask_each, timeout)

    async def ask_all_brokers(
        self, request: Request[R], timeout: float | None
    ) -> dict[BrokerInfo, R]:
        """Send the request to all brokers, and return their responses.

        If the request to an existing broker still fails at the timeout, raises the last error of
        that broker.
        """
        self.require_open()
        clock, deadline = self.cluster.clock, self.compute_deadline(timeout)
        found: dict[int, tuple[BrokerInfo, R]] = {}
        failed, last = True, LastAnswer()
        while failed:
            remaining = max(deadline - clock.monotonic(), 0.0)
            try:
                snapshot = await self.cluster.updater.refresh(timeout=remaining, at_once=not found)
            except ApiTimeoutError:
                if last.error is None:
                    raise
                raise _make_timeout_error(last.error) from last.error
            left = {node: broker for node, broker in snapshot.brokers.items() if node not in found}
            answers = await self._ask_brokers(left, request, min(remaining, self.patience_s))
            failed = False
            for node, answer in answers.items():
                if not isinstance(answer, KafkaError):
                    found[node] = left[node], answer
                elif not answer.retriable or clock.monotonic() >= deadline:
                    raise answer
                else:
                    last.note_error(answer)
                    failed = True
        return dict(found.values())

    async def _ask_brokers(
        self, brokers: Iterable[int], request: Request[R], timeout: float
    ) -> Answers[int, R]:
        async def ask(items: dict[int, None], to: Broker) -> Answers[int, R]:
            async with self._end_if_unlisted(to.node_id):
                return dict.fromkeys(items, await self.send_request(request, to, timeout))

        return await ask_targets({Broker(node): {node: None} for node in brokers}, ask)

    @asynccontextmanager
    async def _end_if_unlisted(self, node_id: int) -> AsyncIterator[None]:
        """Run a block. If the metadata stops listing the broker, end it with a retriable error.

        Without this, a request to a broker that has died would be repeated for `patience_s`.
        """

        def observe(old: ClusterMetadata, new: ClusterMetadata) -> None:
            if node_id not in new.brokers and not block.expired():
                block.reschedule(0.0)

        try:
            async with asyncio.timeout(None) as block:
                unsubscribe = self.cluster.updater.add_listener(observe)
                try:
                    yield
                finally:
                    unsubscribe()
        except TimeoutError:
            if not block.expired():
                raise
            text = f"The metadata no longer lists broker {node_id}."
            raise RefreshRetriableError(text, broker=node_id) from None


async def ask_targets(
    groups: Mapping[T, dict[K, Item]], ask: AskOne[K, Item, T, V]
) -> Answers[K, V]:
    """Send the requests to several targets at the same time, and return all results.

    If the request to one target fails, only its items get that error.
    """
    answers: dict[K, V | KafkaError] = {}

    async def ask_one(to: T, items: dict[K, Item]) -> None:
        answers.update(await ask(items, to))

    def failed(items: dict[K, Item], error: KafkaError) -> None:
        answers.update(dict.fromkeys(items, bare(error)))

    await ask_in_parallel(groups, ask_one, failed)
    return answers


def read_failure(result: Any, api: str, resource: str) -> KafkaError | None:
    """Return the error of one item in a response that has messages, or None for code 0."""
    return error_for(result.error_code, result.error_message, api=api, resource=resource)


def split_into_steps(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the items in parts that one request asks for, so that no answer is too large."""
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Return the partitions of each topic, as requests have them."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics


def by_partition(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield the result for each partition in the topics of a response."""
    for topic in topics:
        for result in topic.partitions:
            yield TopicPartition(topic.name, result.partition_index), result


def make_leader_failure(
    code: int, api: str, tp: TopicPartition, message: str | None = None
) -> KafkaError | None:
    """Return the error of one partition in the response of its leader, or None for code 0."""
    if code == UnknownTopicOrPartitionError.code:
        # The partition itself exists, because the metadata has it: the leader has moved.
        return NotLeaderOrFollowerError(api=api, topic_partition=tp)
    return error_for(code, message, api=api, topic_partition=tp)


def find_partition_problem(
    snapshot: ClusterMetadata, partition: TopicPartition, api: str
) -> KafkaError | None:
    """Return an error if the metadata lacks the partition, otherwise None."""
    topic = snapshot.find_topic(partition.topic)
    if topic is not None and topic.error:
        return error_for(topic.error, api=api, resource=f"topic {topic.name}")
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return UnknownTopicOrPartitionError(api=api, topic_partition=partition)
    return None


def _find_leader_problem(
    snapshot: ClusterMetadata, partition: TopicPartition, api: str
) -> KafkaError | None:
    """Return an error if the metadata lacks the partition or its leader, otherwise None."""
    error = find_partition_problem(snapshot, partition, api)
    if error is None and snapshot.find_leader(*partition) < 0:
        error = LeaderNotAvailableError(api=api, topic_partition=partition)
    return error


def _choose_answer(answer: Any, before: Any) -> Any:
    """Return the newer result of an item.

    If that is only a timeout and the previous result was an error, the timeout names that error.
    """
    late = isinstance(answer, ApiTimeoutError)
    return _make_timeout_error(before) if late and isinstance(before, KafkaError) else answer


def _make_missing_error(key: object) -> KafkaError:
    return ProtocolError(f"The response does not contain {key}.")


def _make_timeout_error(error: KafkaError) -> KafkaError:
    if isinstance(error, ApiTimeoutError):
        return error
    late = ApiTimeoutError(f"The last response: {error}", api=error.api)
    late.broker, late.resource = error.broker, error.resource
    late.topic_partition = error.topic_partition
    late.__cause__ = error
    return late
