"""The committed offsets of a group: OffsetCommit and OffsetFetch.

A commit is sent with the present member id and generation, called the identity of the member here.
The policy decides about the error of each partition, and partitions with a retriable error are sent
again until the timeout. A commit may be refused because the group has rebalanced meanwhile. Then
the identity has changed, and the commit is sent again with the new identity.

Partitions that this member no longer owns are not sent: the group has assigned them to another
member, and a commit would undo the commits of that member. One commit is sent at a time, in the
order of the calls. While a commit waits for an identity, later commits proceed. When it continues,
it skips the partitions that later commits have stored. `CommitAttempt` has the state of one commit,
without IO: the offsets that are left to store, and the results so far.

    left ──▶ stored       the coordinator has stored the offset
      │ ├──▶ superseded   a later commit has been stored, which this one would undo
      │ └──▶ refused      not owned, refused with a final error, or out of attempts
      └── again           a retriable error, or an error of an earlier identity: the offset stays
                          in `remaining_offsets`, and the next attempt sends it

Each partition ends as stored, superseded, or refused. The commit is done when no offset is left.
`PerItem` keeps the partitions that are left, and decides by the policy.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aiokclient.background import Wakeup
from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.cluster.requests.per_item import ItemResults, PerItem, ask_within
from aiokclient.consumer.membership.offsets import messages
from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.errors import (
    ApiTimeoutError,
    CommitFailedError,
    DisconnectedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from aiokclient.log.limited_log import LimitedLog
from aiokclient.network.pool import Purpose
from aiokclient.policy import Attempts, Backoff, Scope
from aiokclient.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.cluster.requests.attempts import RefusalLog
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator
    from aiokclient.consumer.state.partition import PartitionState
    from aiokclient.network.connection import BrokerConnection
    from aiokclient.protocol.schema import Request


class CommitOrder:
    """The order of the commits of one consumer, and the last stored commit of each partition."""

    def __init__(self) -> None:
        self._last = 0
        self._stored: dict[TopicPartition, int] = {}

    def issue_ticket(self) -> int:
        """Return the number of a new commit, which is higher than all earlier numbers."""
        self._last += 1
        return self._last

    def mark_stored(self, tp: TopicPartition, ticket: int) -> None:
        """Record that a commit was stored for a partition."""
        self._stored[tp] = max(self._stored.get(tp, 0), ticket)

    def is_superseded(self, tp: TopicPartition, ticket: int) -> bool:
        """Return whether a later commit than this one was stored for a partition."""
        return self._stored.get(tp, 0) > ticket


class CommitAttempt:
    """The offsets of one commit. Only its methods change it.

    `ticket` is the number of the commit in `CommitOrder`. `held` has the state of each partition
    when the commit began; a partition that was lost and assigned again has another state.
    `cluster_id` is the id of the cluster to which the offsets belong. `commits` decides which
    errors are final. With `rising`, only offsets that are higher than the committed ones are
    stored.
    """

    def __init__(
        self,
        ticket: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        held: Mapping[TopicPartition, PartitionState | None],
        retry: Attempts,
        commits: Commits,
        *,
        attempts: float,
        rising: bool,
        refusals: RefusalLog | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self.ticket = ticket
        self.cluster_id = cluster_id
        self.rising = rising
        self._retry = retry
        self._attempts = attempts
        self._held = held
        self._offsets = offsets
        self._commits = commits
        self._items = PerItem(offsets, retry, Scope.OFFSET_COMMIT, refusals=refusals)
        self._renamed = False
        self._failed: Mapping[TopicPartition, KafkaError] = {}
        self._refused: dict[TopicPartition, KafkaError] = {}

    @property
    def remaining_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that are still to be stored."""
        return {tp: self._offsets[tp] for tp in self._items.remaining}

    @property
    def last_error(self) -> KafkaError | None:
        """One of the errors of the last attempt that had any; None if no attempt had one."""
        return self._items.last_error

    @property
    def refused_errors(self) -> dict[TopicPartition, KafkaError]:
        """A copy of the errors of the refused partitions."""
        return dict(self._refused)

    def is_done(self) -> bool:
        """Return whether nothing is left to store."""
        return not self._items.remaining

    def find_state(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state of a partition when the commit began, or None if it was not owned."""
        return self._held[tp]

    def skip_superseded(self, tps: Collection[TopicPartition]) -> None:
        """Skip partitions, because a later commit has stored them."""
        self._items.drop_items(tps)

    def refuse_partitions(self, errors: Mapping[TopicPartition, KafkaError]) -> None:
        """Record the final errors of partitions."""
        self._refused.update(errors)
        self._items.drop_items(errors)

    def record_errors(self, failed: Mapping[TopicPartition, KafkaError], *, renamed: bool) -> float:
        """Record the errors of an attempt, and return the seconds to wait before the next one.

        The partitions without an error are stored. With `renamed`, the identity has changed since
        the attempt was sent, so no error of the attempt is final.
        """
        self._failed, self._renamed = failed, renamed
        return self._items.record_errors(
            failed,
            refresh=self._commits.refresh_partition,
            refuse=self._on_final_error,
            is_final=self._commits.is_final,
        )

    def refuse_if_exhausted(self) -> None:
        """Refuse the partitions that are left, if the last permitted attempt has been made."""
        if self._retry.attempt >= self._attempts:
            self.refuse_partitions({tp: self._failed[tp] for tp in self._items.remaining})

    def _on_final_error(self, tp: TopicPartition, error: KafkaError) -> bool:
        if not self._renamed:
            self._refused[tp] = error
        return self._renamed


NOT_OWNED = frozenset(
    {
        FencedInstanceIdError.code,
        FencedMemberEpochError.code,
        GroupIdNotFoundError.code,
        IllegalGenerationError.code,
        StaleMemberEpochError.code,
        UnknownMemberIdError.code,
    }
)
"""Error codes that show that the consumer is not a member with the identity in the commit, so that
it does not own its partitions."""

NOT_A_MEMBER = (
    "The commit failed: the coordinator does not have this consumer as a member of the group.",
    "A consumer that is not a member of the group can commit partitions that were assigned by hand "
    "only while the group has no members. Use a group_id that no subscribed consumer uses. If this "
    "consumer is subscribed as well, request records, and commit when it is a member again.",
)
"""The error text for partitions that are assigned by hand, which a group never revokes."""

NOT_ASSIGNED = (
    "The commit failed: the partitions are not assigned to this consumer.",
    "Assign them and read, or commit offsets as {partition: offset}.",
)
"""The error text for partitions that are not assigned here and were given without offsets."""

NEVER_ASSIGNED = (
    "The commit failed: the group has not assigned the partitions to this consumer.",
    "Commit partitions that are in assignment(). If it stays empty, health() says why. To set "
    "offsets of a group from outside, use Admin.alter_consumer_group_offsets().",
)
"""The error text for partitions of subscribed topics that the consumer never had."""

OTHER_CLUSTER = (
    "The commit failed: the client has moved to another cluster since the records were delivered.",
    "Their offsets mean nothing there. Request records, which come from the present cluster.",
)
"""The error text for records that were delivered before the client moved to another cluster."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Errors = dict[TopicPartition, KafkaError]


class Commits:
    """The committed offsets of one group, for one consumer in it.

    The coordinator knows the identity of the consumer in the group, and calls `wake_commits` when
    it has changed.
    """

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        cluster, subscription = coordinator.cluster, coordinator.subscription
        self.group_id = coordinator.group_id
        self._coordinator = coordinator
        self._listener_calls = coordinator.listener_calls
        self._supervisor = coordinator.supervisor
        self._renamed = Wakeup()
        self._is_over = False
        """Whether this consumer will not be a member any more."""
        self._is_awaited = False
        """Whether the group waits for this member to revoke partitions."""
        self._cluster = cluster
        self._subscription = subscription
        self._released = coordinator.released
        self._log = LimitedLog(subscription.client_log, cluster.clock)
        self._turn = asyncio.Lock()
        self._order = CommitOrder()
        self._refused: dict[TopicPartition, str] = {}
        self._storing: dict[CommitAttempt, None] = {}
        self._request_s = coordinator.config.request_timeout_ms / 1000
        self._backoff = Backoff.of(coordinator.config)
        self._count = cluster.metrics.counter("consumer.commits")
        self._failures = cluster.metrics.counter("consumer.commits.failed")
        self._latencies = subscription.own_metrics.spread("commits")

    # -- notifications

    def wake_commits(self) -> None:
        """Wake waiting commits, because they may have to be sent with another identity, or refused.

        The identity has changed, partitions were released, the cluster was replaced, or the
        consumer has failed.
        """
        self._renamed.set()

    def end_membership(self) -> None:
        """Record that this consumer will not be a member any more."""
        self._is_over = True
        self._renamed.set()

    def on_transaction_committed(
        self, committed: Iterable[tuple[PartitionState, int, int]]
    ) -> None:
        """Record offsets that a transaction has committed.

        Each item has the state of a partition, the value of `state.jumps` when the offset was
        read, and the offset. Earlier commits that still wait will skip these partitions, so that
        they do not undo the transaction's offsets.
        """
        # The transaction has stored these offsets at the coordinator, so an earlier commit that is
        # still repeated would set them back.
        ticket = self._order.issue_ticket()
        for state, jumps, offset in committed:
            self._refused.pop(state.tp, None)
            self._order.mark_stored(state.tp, ticket)
            # After a seek, the committed offset tells nothing about the position.
            if state.jumps == jumps:
                state.group.set_committed(offset)
            self._released.on_committed(state.tp, offset)

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Return a context manager, in whose body commits do not wait for the group.

        The group waits for the caller. If a commit waited for the group, neither would continue.
        """
        self._is_awaited = True
        try:
            yield
        finally:
            self._is_awaited = False

    async def wait_until_member(self) -> None:
        """Wait until this consumer is a member of its group.

        Raises the error with which the consumer has failed.
        """
        while not self._coordinator.membership.metadata.member_id:
            self._supervisor.raise_failure()
            await self._renamed.wait()

    async def wait_for_new_identity(self, until: float) -> bool:
        """Wait until the identity may have changed.

        Return False if it has not when the loop's clock passes `until`, and after `end_membership`.
        """
        return not self._is_over and await self._renamed.wait(until)

    # -- storing

    async def commit_offsets(
        self,
        offsets: Offsets,
        timeout: float,
        covers: Callable[[TopicPartition], bool] = lambda tp: False,
    ) -> None:
        """Store these offsets within `timeout` seconds, or raise the error of one of them.

        After an error or a cancellation, some of the offsets may have been stored. Raises
        CommitFailedError for partitions that are no longer owned, for offsets of another cluster,
        and for partitions for which `covers(tp)` is true and delivered records were lost.
        """
        former = self._released.find_former(offsets)
        offsets = {tp: to for tp, to in offsets.items() if tp not in former}
        # While a failed consumer is being closed, its listener is called and may still commit.
        in_listener = self._listener_calls.is_inside()
        refused = await self.store_offsets(offsets, timeout, check=not in_listener)
        gone = {tp: error for tp, error in refused.items() if _not_owned(error)}
        unstored = [*former, *self._released.find_uncommitted(covers)]
        if gone or unstored:
            by_hand = not unstored and not any(
                map(self._was_assigned_by_group, gone, gone.values())
            )
            text = NOT_A_MEMBER if by_hand else None
            if not (by_hand or unstored) and self._were_never_assigned(gone):
                text = NEVER_ASSIGNED
            if self._released.has_former([*gone, *unstored]):
                text = OTHER_CLUSTER
            if not in_listener:
                self._released.mark_told(unstored)
            raise _commit_failed([*dict.fromkeys([*gone, *unstored])], list(gone.values()), text)
        if refused:
            raise next(iter(refused.values()))

    async def store_offsets(
        self,
        offsets: Offsets,
        timeout: float,
        *,
        attempts: float = math.inf,
        rising: bool = False,
        check: bool = False,
    ) -> Errors:
        """Store these offsets; return the errors of those that could not be stored.

        With `rising`, only offsets that are higher than the committed ones are stored. With
        `check`, the error with which the consumer has failed is raised before the next attempt.
        Raises ApiTimeoutError after `timeout` seconds.
        """
        if not offsets:
            return {}
        attempt = self._make_attempt(offsets, timeout, attempts, rising)
        self._storing[attempt] = None
        try:
            async with asyncio.timeout(None if timeout == math.inf else timeout):
                self._refuse_lost_partitions(attempt)
                await self._look_up_topics(attempt.remaining_offsets)
                while not attempt.is_done():
                    if check:
                        self._supervisor.raise_failure()
                    self._refuse_lost_partitions(attempt)
                    if not attempt.is_done() and self._must_wait_for_member():
                        # The lock is not held here, because the group may wait for another commit.
                        await self._renamed.wait()
                        continue
                    # One commit at a time: the repetition of an earlier one must not come after a
                    # later one.
                    async with self._turn:
                        await self._repeat_attempts(attempt, check)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise ApiTimeoutError(
                f"Nothing was committed for {len(attempt.remaining_offsets)} partitions within "
                f"{timeout:.1f} s.",
                api="OffsetCommit",
                topic_partition=next(iter(attempt.remaining_offsets), None),
            ) from attempt.last_error
        finally:
            del self._storing[attempt]
            self._failures.add(len(attempt.refused_errors))
        return attempt.refused_errors

    def _make_attempt(
        self, offsets: Offsets, timeout: float, attempts: float, rising: bool
    ) -> CommitAttempt:
        noted = self._add_notes(offsets)
        held = {tp: self._find_state(tp) for tp in noted}
        return CommitAttempt(
            self._order.issue_ticket(),
            noted,
            held,
            self._make_retry(timeout),
            self,
            attempts=attempts,
            rising=rising,
            refusals=self._cluster.refusals,
            cluster_id=self._cluster.metadata.cluster_id,
        )

    async def _repeat_attempts(self, attempt: CommitAttempt, check: bool) -> None:
        """Repeat attempts until the commit is done, or has to wait for an identity."""
        while not (attempt.is_done() or self._must_wait_for_member()):
            if check:
                self._supervisor.raise_failure()
            self._skip_superseded(attempt)
            self._refuse_lost_partitions(
                attempt, is_member=bool(self._coordinator.membership.metadata.member_id)
            )
            if attempt.is_done():
                return
            await self._store_once(attempt)
            attempt.refuse_if_exhausted()

    async def _store_once(self, attempt: CommitAttempt) -> None:
        """Send the remaining offsets once, record the results, then back off."""
        left, member = attempt.remaining_offsets, self._coordinator.membership.metadata
        jumps = {tp: state.jumps for tp in left if (state := self._find_state(tp)) is not None}
        failed = await self._send_commit(left, member)
        for tp, to in left.items():
            if tp in failed:
                continue
            self._refused.pop(tp, None)
            self._order.mark_stored(tp, attempt.ticket)
            state = self._find_state(tp)
            if state is not None and jumps.get(tp) == state.jumps:
                state.group.set_committed(to.offset)
        delay_s = attempt.record_errors(
            failed, renamed=member != self._coordinator.membership.metadata
        )
        for tp, error in attempt.refused_errors.items():
            if tp in failed and not _not_owned(error):
                self._refused[tp] = str(error)  # An error would hold the variables of its caller.
        if not attempt.is_done():
            await self._renamed.wait(asyncio.get_running_loop().time() + delay_s)

    def _must_wait_for_member(self) -> bool:
        """Return whether a commit must wait until this consumer is a member again.

        In a call of the listener it must not wait, because the group waits for the listener.
        """
        if (
            self._is_over
            or self._coordinator.membership.metadata.member_id
            or not self._subscription.subscription
        ):
            return False
        return self._coordinator.can_become_member() and not self._listener_calls.is_inside()

    def _refuse_lost_partitions(self, attempt: CommitAttempt, *, is_member: bool = True) -> None:
        """Refuse partitions that are not owned.

        If this consumer is not a member, it owns none of the partitions that the group assigned.
        If the commit began in another cluster, all partitions are refused.
        """
        is_shared = self._subscription.is_shared
        elsewhere = differ(attempt.cluster_id, self._cluster.metadata.cluster_id)
        attempt.refuse_partitions(
            {
                tp: CommitFailedError(partitions=[tp])
                for tp in attempt.remaining_offsets
                if elsewhere
                or self._is_lost(tp, attempt.find_state(tp))
                or (not is_member and is_shared(tp))
            }
        )

    def _skip_superseded(self, attempt: CommitAttempt) -> None:
        """Skip partitions that a later commit has stored, because this commit would undo that one.

        A commit with `rising` also skips partitions whose committed offset it would not increase.
        """
        superseded = set()
        for tp, to in attempt.remaining_offsets.items():
            state = self._find_state(tp)
            risen = state is not None and state.group.committed >= to.offset
            if (attempt.rising and risen) or self._order.is_superseded(tp, attempt.ticket):
                superseded.add(tp)
        attempt.skip_superseded(superseded)

    def find_refusal(self, tp: TopicPartition) -> KafkaError | None:
        """Return the last error of the commits of a partition in progress, or None."""
        attempts = (attempt for attempt in self._storing if tp in attempt.remaining_offsets)
        return next((each.last_error for each in attempts if each.last_error is not None), None)

    def list_refusals(self) -> list[str]:
        """Return, as texts, the partitions whose last commit was refused, with the reason.

        Only present partitions of the consumer are included. Safe in any thread.
        """
        partitions, refused = self._subscription.partitions, list(self._refused.items())
        return [f"commits of {tp} are refused: {why}" for tp, why in refused if tp in partitions]

    def _add_notes(self, offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets with the rewind notes of their partitions as metadata.

        The notes are those at the time of the call: if a partition is rewound while the commit
        waits, the commit must not have the note of that rewind.
        """
        noted = dict(offsets)
        for tp, to in offsets.items():
            state = self._find_state(tp)
            if state is not None and state.group.note:
                noted[tp] = to._replace(
                    metadata=rewind_requests.annotated(to.metadata, state.group.note)
                )
        return noted

    async def _send_commit(self, offsets: Offsets, member: GroupMetadata) -> Errors:
        metadata = self._cluster.metadata
        self._count.add()
        began = self._cluster.clock.monotonic()

        def build(connection: BrokerConnection) -> Request[Any]:
            return messages.commit_request(member, offsets, metadata)

        try:
            response, node_id = await self._send_to_coordinator(build, offsets, metadata)
        except KafkaError as error:
            return dict.fromkeys(offsets, error)
        self._latencies.observe(self._cluster.clock.monotonic() - began)
        return messages.commit_errors(response, offsets, metadata, node_id)

    # -- fetching

    async def fetch_committed(
        self, tps: Iterable[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, or None for partitions without one.

        It waits while an open transaction has offsets of these partitions (KIP-447). Raises
        ApiTimeoutError after `timeout` seconds, and errors that are not retriable.
        """
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}

        async def ask(left: list[TopicPartition]) -> Errors:
            results = await self.request_committed(left)
            found.update(results.found_values)
            return results.errors

        await ask_within(
            timeout,
            tps,
            ask,
            self._make_retry(timeout),
            Scope.OFFSET_FETCH,
            refresh=self.refresh_partition,
            check=self._supervisor.raise_failure,
            api="OffsetFetch",
            needed="committed offset",
            refusals=self._cluster.refusals,
        )
        return found

    async def request_committed(self, tps: Iterable[TopicPartition]) -> messages.CommittedOffsets:
        """Send one OffsetFetch; return the committed offsets, and errors of other partitions."""
        wanted = list(tps)
        if not wanted:
            return ItemResults()
        try:
            await self._look_up_topics(wanted)
            metadata = self._cluster.metadata
            member = self._coordinator.membership.metadata

            def build(connection: BrokerConnection) -> Request[Any]:
                return messages.fetch_request(connection, member, wanted, metadata)

            response, node_id = await self._send_to_coordinator(build, wanted, metadata)
        except KafkaError as error:
            return messages.all_failed(wanted, error)
        return messages.fetched(response, wanted, metadata, node_id)

    # -- requests

    async def _send_to_coordinator(
        self,
        build: Callable[[BrokerConnection], Request[Any]],
        tps: Iterable[TopicPartition],
        metadata: ClusterMetadata,
    ) -> tuple[Any, int]:
        node_id = await self._cluster.coordinators.locate_coordinator("group", self.group_id)
        connection = await self._cluster.connect(
            node_id, Purpose.GROUP, self._coordinator.membership.connection_owner
        )
        if differ(metadata.cluster_id, self._cluster.metadata.cluster_id):
            # The request would have ids and offsets of the former cluster.
            raise DisconnectedError(
                "The client is now connected to another cluster.", broker=node_id
            )
        request = build(connection)
        version = messages.version_for(connection, request, tps, metadata)
        response = await connection.send(request, timeout_s=self._request_s, version=version)
        return response, node_id

    async def _look_up_topics(self, tps: Iterable[TopicPartition]) -> None:
        """Look up topics whose ids are unknown, because newer versions identify topics by id."""
        topics = dict.fromkeys(tp.topic for tp in tps)
        unknown = [topic for topic in topics if self._cluster.metadata.find_topic(topic) is None]
        if unknown:
            try:
                await self._cluster.updater.refresh(unknown, timeout=self._request_s)
            except Exception as error:  # After a failure of the client, this may be any error.
                text, names = "The topics %s are not known: %s", ", ".join(unknown)
                extra = {"event": "metadata_outdated"}
                self._log.write(logging.INFO, ("topics", names), text, names, error, extra=extra)

    def _make_retry(self, timeout: float) -> Attempts:
        clock = self._cluster.clock
        return Attempts(clock.monotonic() + timeout, self._backoff, clock)

    def refresh_partition(self, tp: TopicPartition, error: KafkaError) -> bool:
        """Look up the coordinator and the topic again; return whether the partition may exist."""
        self._cluster.coordinators.forget_coordinator("group", self.group_id)
        self._cluster.updater.request_update([tp.topic])
        return not self._cluster.metadata.lacks_partition(*tp)

    def is_final(self, tp: TopicPartition, error: KafkaError) -> bool:
        """Return whether an error is final, because neither side would continue.

        The coordinator waits for this member, which waits for the commit.
        """
        # The coordinator returns this code until this member has joined again.
        rejoins = error.code == RebalanceInProgressError.code
        return rejoins and (self._is_awaited or self._listener_calls.is_inside())

    def _find_state(self, tp: TopicPartition) -> PartitionState | None:
        return self._subscription.partitions.get(tp)

    def _was_assigned_by_group(self, tp: TopicPartition, error: KafkaError) -> bool:
        """Return whether a refused partition was assigned by the group, not by the application."""
        shared = self._subscription.is_shared(tp) or self._released.is_released(tp)
        return error.code is None or shared

    def make_not_assigned_error(self, tps: Sequence[TopicPartition]) -> CommitFailedError:
        """Return the error for partitions that this consumer does not have."""
        lost = any(self._is_lost(tp, None) for tp in tps)
        text = NEVER_ASSIGNED if self._were_never_assigned(tps) else None
        return _commit_failed(tps, [], text if lost else NOT_ASSIGNED)

    def _were_never_assigned(self, tps: Iterable[TopicPartition]) -> bool:
        return not any(self._find_state(tp) or self._released.is_released(tp) for tp in tps)

    def may_have_topic(self, topic: str) -> bool:
        """Return whether the consumer subscribes to a topic, or had a partition of it."""
        subscribed = self._subscription.subscription.matches(topic, internal=False)
        return subscribed or self._released.has_topic(topic)

    def _is_lost(self, tp: TopicPartition, held: PartitionState | None) -> bool:
        """Return whether a partition of the group is not owned, or was lost and assigned again.

        Partitions that are assigned by hand, or whose topics are not subscribed, are never lost.
        """
        subscription = self._subscription
        state = self._find_state(tp)
        if state is not None and (state is held or not subscription.is_shared(tp)):
            return False
        if state is None and self._released.is_released(tp):
            return True
        return subscription.subscription.matches(tp.topic, internal=False)


def _not_owned(error: KafkaError) -> bool:
    return error.code in NOT_OWNED or isinstance(error, CommitFailedError)


def _commit_failed(
    tps: Sequence[TopicPartition],
    errors: Sequence[KafkaError],
    text: tuple[str, str] | None = None,
) -> CommitFailedError:
    """Return the error for partitions that are not owned; a broker's error is its cause."""
    what, hint = text or (None, None)
    failure = CommitFailedError(partitions=tps, what=what, hint=hint)
    failure.__cause__ = next((error for error in errors if error.code is not None), None)
    return failure
