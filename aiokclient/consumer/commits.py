"""Storing how far the group is, and asking for it: OffsetCommit and OffsetFetch.

Theory of operation. A commit goes out under the name that this member has at that moment. What
comes back for each partition is judged by the policy, and what may go well later is sent again
until the time is up. A commit that was refused although the member has another name by now (the
group has gone on meanwhile, and this member with it) is sent again under that name.

What this member does not own any more is not sent at all: the group has given it to another, whose
commit would be undone. Commits go out one after the other, so that none overtakes another.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiokclient.consumer import offset_messages as messages
from aiokclient.consumer import orders
from aiokclient.consumer.signal import Signal
from aiokclient.errors import (
    ApiTimeoutError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
)
from aiokclient.network.pool import Purpose
from aiokclient.policy import Backoff, Decision, Scope, decide
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aiokclient.cluster.client import ClusterClient
    from aiokclient.cluster.metadata import ClusterMetadata
    from aiokclient.config import ConsumerConfig
    from aiokclient.consumer.positions import PartitionState
    from aiokclient.consumer.subscription import SubscriptionState
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.protocol.schema import Request

__all__ = ["Commits"]

logger = logging.getLogger("aiokclient.consumer")

AWAITED = frozenset({RebalanceInProgressError.code})
"""Codes that the coordinator goes on answering until this member has joined again."""

R = TypeVar("R")
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Errors = dict[TopicPartition, KafkaError]


class Commits:
    """The offsets of one group, for one consumer in it.

    `member` tells who this consumer is in the group at present; `renamed` is set when that has
    changed. `owner` tells who owns the connection.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        *,
        member: Callable[[], GroupMetadata],
        owner: Callable[[], Hashable],
    ) -> None:
        assert config.group_id is not None
        self.group_id = config.group_id
        self.member = member
        self.renamed = Signal()
        self.over = False
        """This consumer will be no member any more."""
        self.awaited = False
        """The group waits for this member to give something up; see `AWAITED`."""
        self._cluster = cluster
        self._subscription = subscription
        self._owner = owner
        self._turn = asyncio.Lock()
        self._request_s = config.request_timeout_ms / 1000
        self._backoff = Backoff(config.retry_backoff_ms / 1000, config.retry_backoff_max_ms / 1000)
        self._count = cluster.metrics.counter("consumer.commits")
        self._failures = cluster.metrics.counter("consumer.commits.failed")

    # -- storing

    async def commit(self, offsets: Offsets, timeout: float) -> None:
        """Stores these offsets, within `timeout` seconds, or raises why one could not be stored.

        The others may have been stored then, as after a cancellation.
        """
        refused = await self.store(offsets, timeout)
        if refused:
            raise next(iter(refused.values()))

    async def store(
        self, offsets: Offsets, timeout: float, *, attempts: float = math.inf, rising: bool = False
    ) -> Errors:
        """Stores these offsets; what could not be, and why. Raises ApiTimeoutError.

        With `rising` nothing is stored that is not above what was by then.
        """
        refused: Errors = {}
        if not offsets:
            return refused
        deadline = self._cluster.clock.monotonic() + timeout
        left = self._with_notes(offsets)
        held = {tp: self._state(tp) for tp in left}
        last: list[KafkaError] = []
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout), self._turn:
                await self._known(left)
                attempt = 0
                while left:
                    if rising:
                        self._drop_old(left)
                    await self._store(left, held, refused, attempt, deadline, last)
                    attempt += 1
                    if attempt >= attempts:
                        refused.update(dict.fromkeys(left, last[-1]) if left else {})
                        break
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise ApiTimeoutError(
                f"nothing was committed for {len(left)} partitions within {timeout:.1f} s",
                api="OffsetCommit",
                topic_partition=next(iter(left), None),
            ) from (last[-1] if last else None)
        finally:
            self._failures.add(len(refused))
        return refused

    async def _store(
        self,
        left: dict[TopicPartition, OffsetAndMetadata],
        held: Mapping[TopicPartition, PartitionState | None],
        refused: Errors,
        attempt: int,
        deadline: float,
        last: list[KafkaError],
    ) -> None:
        """One attempt: takes out of `left` what is stored or refused for good, then backs off."""
        self._drop_lost(left, held, refused)
        if not left:
            return
        member = await self._name()
        # A new name is that of a new membership: what was owned in the one before is gone.
        self._drop_lost(left, held, refused)
        if not left:
            return
        jumps = {tp: state.jumps for tp in left if (state := self._state(tp)) is not None}
        failed = await self._send(left, member)
        for tp in [tp for tp in left if tp not in failed]:
            offset = left.pop(tp).offset
            state = self._state(tp)
            if state is not None and jumps.get(tp) == state.jumps:
                state.committed = offset
        delay = 0.0
        remaining = deadline - self._cluster.clock.monotonic()
        for tp, error in failed.items():
            last.append(error)
            final = self.awaited and error.code in AWAITED
            action = (
                None if final else self._judge(tp, error, Scope.OFFSET_COMMIT, attempt, remaining)
            )
            if action is not None:
                delay = max(delay, action)
            elif member == self.member():
                refused[tp] = error
                del left[tp]
        if left:
            await self.renamed.wait(asyncio.get_running_loop().time() + delay)

    def _drop_lost(
        self,
        left: dict[TopicPartition, OffsetAndMetadata],
        held: Mapping[TopicPartition, PartitionState | None],
        refused: Errors,
    ) -> None:
        for tp in [tp for tp in left if self._is_lost(tp, held[tp])]:
            refused[tp] = lost(tp)
            del left[tp]

    def _drop_old(self, left: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for tp in list(left):
            state = self._state(tp)
            if state is not None and state.committed >= left[tp].offset:
                del left[tp]

    def _with_notes(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a partition is to be remembered by goes with every commit.

        As it is when the commit is asked for: one that waits for its turn while the partition is
        rewound must not say so.
        """
        noted = dict(offsets)
        for tp, to in offsets.items():
            state = self._state(tp)
            if state is not None and state.note:
                noted[tp] = to._replace(metadata=orders.annotated(to.metadata, state.note))
        return noted

    async def _send(self, offsets: Offsets, member: GroupMetadata) -> Errors:
        metadata = self._cluster.metadata
        self._count.add()

        def build(connection: BrokerConnection) -> Request[Any]:
            return messages.commit_request(member, offsets, metadata)

        try:
            response, node_id = await self._ask(build, offsets, metadata)
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        return messages.commit_errors(response, offsets, metadata, node_id)

    # -- asking

    async def fetch(
        self, tps: Iterable[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored; None where it has nothing. Raises ApiTimeoutError and such.

        Offsets of transactions that are not ended are waited for (KIP-447).
        """
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        left = list(dict.fromkeys(tps))
        deadline = self._cluster.clock.monotonic() + timeout
        last: KafkaError | None = None
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout):
                for attempt in range(1 << 62):
                    answered, failed = await self.ask(left)
                    found.update(answered)
                    left = [tp for tp in left if tp in failed]
                    if not left:
                        return found
                    last = failed[left[0]]
                    await self._before_next(failed, attempt, deadline)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise ApiTimeoutError(
                f"no committed offset within {timeout:.1f} s",
                api="OffsetFetch",
                topic_partition=left[0],
            ) from last
        raise AssertionError("unreachable")

    async def _before_next(self, failed: Errors, attempt: int, deadline: float) -> None:
        delay = 0.0
        remaining = deadline - self._cluster.clock.monotonic()
        for tp, error in failed.items():
            action = self._judge(tp, error, Scope.OFFSET_FETCH, attempt, remaining)
            if action is None:
                raise error
            delay = max(delay, action)
        await asyncio.sleep(delay)

    async def ask(
        self, tps: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], Errors]:
        """One question: what is stored, and for which partitions there is no answer, and why."""
        wanted = list(tps)
        if not wanted:
            return {}, {}
        try:
            await self._known(wanted)
            metadata = self._cluster.metadata
            member = self.member()

            def build(connection: BrokerConnection) -> Request[Any]:
                return messages.fetch_request(connection, member, wanted, metadata)

            response, node_id = await self._ask(build, wanted, metadata)
        except KafkaError as error:
            return {}, dict.fromkeys(wanted, error)
        return messages.fetched(response, wanted, metadata, node_id)

    # -- both

    async def _ask(
        self,
        build: Callable[[BrokerConnection], Request[Any]],
        tps: Iterable[TopicPartition],
        metadata: ClusterMetadata,
    ) -> tuple[Any, int]:
        node_id = await self._cluster.coordinators.locate("group", self.group_id)
        connection = await self._cluster.connect(node_id, Purpose.GROUP, self._owner())
        request = build(connection)
        version = messages.version_for(connection, request, tps, metadata)
        response = await connection.send(request, timeout_s=self._request_s, version=version)
        return response, node_id

    async def _known(self, tps: Iterable[TopicPartition]) -> None:
        """Sees to it that the topics have their ids, by which newer brokers know them."""
        topics = dict.fromkeys(tp.topic for tp in tps)
        unknown = [topic for topic in topics if self._cluster.metadata.topic(topic) is None]
        if unknown:
            try:
                await self._cluster.updater.refresh(unknown, timeout=self._request_s)
            except KafkaError as error:
                logger.info("the topics %s are not known: %s", ", ".join(unknown), error)

    async def _name(self) -> GroupMetadata:
        """Who this member is, once it is one: the coordinator refuses others."""
        while self._subscription.subscription and not (self.over or self.member().member_id):
            await self.renamed.wait()
        return self.member()

    def _judge(
        self, tp: TopicPartition, error: KafkaError, scope: Scope, attempt: int, remaining: float
    ) -> float | None:
        """How long to wait before it is tried again; None if it is not to be."""
        rng = self._cluster.clock.rng
        action = decide(error, scope, attempt, remaining, rng, self._backoff)
        if action.decision is Decision.REFRESH_AND_RETRY:
            self._cluster.coordinators.forget("group", self.group_id)
            self._cluster.updater.request_update([tp.topic], reason=str(error))
            if self._cluster.metadata.lacks(*tp):
                return None
        return action.delay_s if action.again else None

    def _state(self, tp: TopicPartition) -> PartitionState | None:
        return self._subscription.partitions.get(tp)

    def _is_lost(self, tp: TopicPartition, held: PartitionState | None) -> bool:
        """Whether it is not owned, or was lost and given back since: others had it meanwhile."""
        subscription = self._subscription
        state = self._state(tp)
        if state is not None and (state is held or not subscription.is_shared(tp)):
            return False
        return subscription.subscription.matches(tp.topic, internal=False)


def lost(tp: TopicPartition) -> IllegalGenerationError:
    """The error for a commit of what the group has given to somebody else."""
    return IllegalGenerationError(
        "This consumer does not own the partition (any more)",
        api="OffsetCommit",
        topic_partition=tp,
    )
