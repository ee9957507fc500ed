"""Rewinding a whole group while it runs: `rewind_group`.

Any member may request it. The request goes to the leader in the member's next JoinGroup, and from
the leader to the owners in the assignments (see `requests`). The request stays in the member's
subscription until it is executed, so that it reaches later leaders and owners, too.

An owner stops the delivery of the partition, waits for records that are being processed, looks up
the start and the end of the log, seeks, and commits with a note. For an offset outside the log, it
seeks to the start or the end of the log, whichever is nearer. All later commits of this partition
keep the note. From the note, the requesting member learns where the partition continues, and a
later owner learns that the request was executed. No record is delivered before the note is stored:
without the note, a later owner would deliver the same records again.

Requests that are due at the same time are executed together: the offset of the latest request
applies, and the note contains all of the requests with that offset.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.metadata.snapshot import differ
from aiokclient.cluster.requests.attempts import LastAnswer
from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.fetching.list_offsets import log_bounds
from aiokclient.consumer.membership.rewind import requests as rewind_requests
from aiokclient.consumer.state.partition import NO_EPOCH, PartitionState, Withheld
from aiokclient.errors import (
    ApiTimeoutError,
    CommitFailedError,
    GroupIdNotFoundError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.policy import Attempts, Backoff, Decision, Scope, classify
from aiokclient.protocol.messages.describe_groups import DescribeGroupsRequest
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.consumer.membership.coordinator import ConsumerCoordinator

LOOK: Final = Backoff(0.05, 1.0)
"""Delays between the checks whether a request has been executed."""

STABLE: Final = "Stable"
DEAD: Final = "Dead"
"""The state that older versions of DescribeGroups return for a group of the newer protocol."""


class GroupRewinder:
    """The rewind requests of this member, and the execution of the requests of all members."""

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        self.wanted: rewind_requests.RewindRequests = {}
        """The requests of this member that have not been executed yet."""
        self._coordinator = coordinator
        self._cluster = coordinator.cluster
        self._subscription = coordinator.subscription
        self._commits = coordinator.commits
        self._in_progress = coordinator.in_progress
        self._patience_s = coordinator.config.max_poll_interval_ms / 1000
        self._supervisor = coordinator.supervisor
        # The keys are the present states of partitions. A partition that is lost and assigned
        # again has a new state.
        self._due: dict[PartitionState, dict[str, int]] = {}

    # -- on the requesting member

    async def request_rewind(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout: float,
    ) -> dict[TopicPartition, int]:
        """Send a request, wait until all owners have sought and committed, and return the offsets.

        The returned offsets are those at which the partitions really continue. Raises
        ApiTimeoutError after `timeout` seconds, and CommitFailedError if the cluster changes.
        """
        left = list(offsets)
        actual = dict(offsets)
        if not left:
            return actual
        cluster_id = self._cluster.metadata.cluster_id
        clock, request_id, last = self._cluster.clock, "", LastAnswer()
        try:
            async with asyncio.timeout(timeout):
                await self._commits.wait_until_member()
                await self._require_own_members(last)
                self._require_cluster(cluster_id, left)
                request_id = f"{clock.time_ms():012x}{clock.rng.getrandbits(32):08x}"
                self.wanted[request_id] = dict(offsets)
                self._coordinator.membership.rejoin("the group is to be rewound")
                await self._wait_until_rewound(request_id, left, actual, cluster_id, last)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise ApiTimeoutError(
                f"These partitions were not rewound within {timeout:.1f} s: "
                f"{', '.join(map(str, left))}. Check that members of the group own them and "
                "request records.",
                api="rewind_group",
            ) from self._find_cause(left, last)
        finally:
            self.wanted.pop(request_id, None)
        return actual

    async def _wait_until_rewound(
        self,
        request_id: str,
        left: list[TopicPartition],
        actual: dict[TopicPartition, int],
        cluster_id: str | None,
        last: LastAnswer,
    ) -> None:
        """Wait until all partitions in `left` are rewound, and record their offsets in `actual`."""
        retry = self._make_retry()
        while True:
            self._supervisor.raise_failure()
            await asyncio.sleep(retry.take_pause_s())
            results = await self._commits.request_committed(left)
            self._require_cluster(cluster_id, left)
            for tp, stored in results.found_values.items():
                if stored is None:
                    continue
                offset = rewind_requests.rewound_to(stored.metadata, request_id)
                if offset is not None:
                    actual[tp] = offset
                    left.remove(tp)
            if not left:
                return
            for error in results.errors.values():
                last.note_error(error)
                decision = classify(error, Scope.OFFSET_FETCH)
                if decision is Decision.FAIL:
                    raise error
                if decision is Decision.REFRESH_AND_RETRY:
                    self._cluster.coordinators.forget_coordinator("group", self._commits.group_id)

    def _find_cause(self, left: Iterable[TopicPartition], last: LastAnswer) -> KafkaError | None:
        """Return why partitions were not rewound, if this member knows it.

        `last` has the errors of the requests of this call. The commits are those of the owner.
        """
        others = [self._commits.find_refusal(tp) for tp in left]
        if last.error is None:
            others.append(
                self._cluster.calls.find_cause(Coordinator("group", self._commits.group_id))
            )
        for error in others:
            if error is not None:
                last.note_error(error)
        return last.error or self._cluster.find_last_error()

    def _require_cluster(self, cluster_id: str | None, left: list[TopicPartition]) -> None:
        if self._is_other_cluster(cluster_id):
            raise CommitFailedError(
                what="The group was not rewound, because the client changed to another cluster.",
                hint="Offsets of the former cluster mean nothing in this one.",
                partitions=left,
                api="rewind_group",
            )

    def _is_other_cluster(self, cluster_id: str | None) -> bool:
        return differ(cluster_id, self._cluster.metadata.cluster_id)

    def on_cluster_replaced(self) -> None:
        """Drop all requests, because offsets of another cluster mean nothing in this one."""
        self.wanted.clear()
        for due in self._due.values():
            due.clear()

    def _make_retry(self) -> Attempts:
        """Return the delays for a loop that the caller's deadline ends."""
        return Attempts(math.inf, LOOK, self._cluster.clock)

    async def _require_own_members(self, last: LastAnswer) -> None:
        """Raise IllegalStateError if a member would not understand the request."""
        group_id = self._commits.group_id
        retry = self._make_retry()
        while True:
            self._supervisor.raise_failure()
            group = await self._describe_group(group_id, last)
            if group.group_state == STABLE:
                break
            # During a rebalance the coordinator does not return the metadata of members.
            await asyncio.sleep(retry.take_pause_s())
        for member in group.members:
            if not rewind_requests.is_ours(bytes(member.member_metadata)):
                raise IllegalStateError(
                    f"Group {group_id!r} cannot be rewound. Its member {member.member_id!r} "
                    f"(client {member.client_id!r} at {member.client_host}) uses another library "
                    "or version, which would ignore the request. Stop that member first, or stop "
                    "the group and set its offsets."
                )

    async def _describe_group(self, group_id: str, last: LastAnswer) -> Any:
        def check(response: Any) -> KafkaError | None:
            group = response.groups[0]
            if group.error_code == GroupIdNotFoundError.code or group.group_state == DEAD:
                return UnsupportedVersionError(
                    f"Group {group_id!r} cannot be rewound: it does not use the classic protocol."
                )
            return error_for(group.error_code, api="DescribeGroups")

        async def before_retry(error: KafkaError) -> None:
            last.note_error(error)

        response = await self._cluster.request(
            DescribeGroupsRequest(groups=[group_id]),
            Coordinator("group", group_id),
            scope=Scope.GROUP,
            check=check,
            before_retry=before_retry,
        )
        return response.groups[0]

    # -- on the owner

    def execute_requests(self, wanted: rewind_requests.RewindRequests) -> None:
        """Execute requests for owned partitions in the background. Synchronous."""
        for request_id, offsets in wanted.items():
            for tp, offset in offsets.items():
                state = self._subscription.partitions.get(tp)
                if state is None or rewind_requests.noted(state.group.note, request_id):
                    continue
                if state not in self._due:
                    self._due[state] = {}
                    self._subscription.withhold([state], Withheld.REWINDING, True)
                    self._supervisor.spawn(self._execute_requests, state, name=f"rewind {tp}")
                self._due[state][request_id] = offset

    async def _execute_requests(self, state: PartitionState) -> None:
        try:
            while (log := await self._find_due_requests(state)) is not None:
                await self._rewind_partition(state, *log)
        finally:
            del self._due[state]
            self._subscription.withhold([state], Withheld.REWINDING, False)

    async def _find_due_requests(self, state: PartitionState) -> tuple[int, int] | None:
        """Wait for records in progress, and read the note.

        Return the start and the end of the log if a request is still due, otherwise None.
        """
        until = asyncio.get_running_loop().time() + self._patience_s
        self._subscription.update_positions()
        while self._in_progress.has_records_of([state]):
            if not await self._in_progress.relieved.wait(until):
                return None
        try:
            stored = (await self._commits.fetch_committed([state.tp], self._patience_s))[state.tp]
            log = await log_bounds(self._cluster, state.tp, self._patience_s)
        except KafkaError as error:
            extra = {"event": "group_rewind_failed", "topic": state.tp.topic}
            self._subscription.client_log.warning(
                "%s cannot be rewound: %s", state.tp, error, extra=extra
            )
            return None
        if stored is not None and not state.group.note:
            state.group.set_note(rewind_requests.note_in(stored.metadata))
        due = self._due[state]
        for request_id in [
            request_id for request_id in due if rewind_requests.noted(state.group.note, request_id)
        ]:
            del due[request_id]
        return log if self._is_still_owned(state) and due else None

    async def _rewind_partition(self, state: PartitionState, start: int, end: int) -> None:
        due = self._due[state]
        latest = sorted(due)
        offset = min(max(due[latest[-1]], start), end)
        extra = {"event": "group_rewound", "topic": state.tp.topic}
        text = "%s goes back to %d: the group is rewound."
        self._subscription.client_log.warning(text, state.tp, offset, extra=extra)
        self._subscription.seek(state.tp, offset, NO_EPOCH)
        state.withhold(Withheld.INITIAL_OFFSET, False)
        for request_id in latest:
            state.group.set_note(rewind_requests.with_note(state.group.note, request_id, offset))
        due.clear()
        await self._commit_position(state, OffsetAndMetadata(offset, state.group.note))

    async def _commit_position(self, state: PartitionState, offset: OffsetAndMetadata) -> None:
        """Commit the new position; retry while the partition is owned and the error permits it."""
        retry, cluster_id = self._make_retry(), self._cluster.metadata.cluster_id
        while not self._is_other_cluster(cluster_id):
            try:
                return await self._commits.commit_offsets({state.tp: offset}, self._patience_s)
            except KafkaError as error:
                extra = {"event": "group_rewind_failed", "topic": state.tp.topic}
                text = "%s is rewound, but the new position was not committed: %s"
                self._subscription.client_log.warning(text, state.tp, error, extra=extra)
                decision = classify(error, Scope.OFFSET_COMMIT)
                if decision is Decision.FAIL or not self._is_still_owned(state):
                    return
            await asyncio.sleep(retry.take_pause_s())

    def _is_still_owned(self, state: PartitionState) -> bool:
        return self._subscription.partitions.get(state.tp) is state
