"""Rewinding a whole group while it lives: `rewind_group`.

Any member may order it. The order goes with the member's next join to the leader, from there with
the assignments to the owners (see `orders`), and stays in the member's subscription until it is
carried out: whoever leads or owns by then, it reaches them.

An owner hands out nothing more of the partition, waits for what is in hand, seeks, and commits with
a note. The note stays with the commits for this partition, whoever makes them: it tells the member
that has ordered it that it is done, and a later owner that it must not be done again. Nothing is
handed out before it is stored: a later owner that knew nothing of it would hand the same out again.

Orders that are there at the same time are carried out as one: the latest says where to, and the
note names all of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from aiokclient.cluster.targets import Coordinator
from aiokclient.consumer.membership.rewind import requests as orders
from aiokclient.consumer.state.partition import NO_EPOCH, PartitionState, Withheld
from aiokclient.errors import (
    ApiTimeoutError,
    GroupIdNotFoundError,
    IllegalStateError,
    KafkaError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.policy import Backoff, Decision, Retry, Scope, classify
from aiokclient.protocol.messages.describe_groups import DescribeGroupsRequest
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.client import ClusterClient
    from aiokclient.consumer.delivery.in_progress import InProgress
    from aiokclient.consumer.membership.offsets.commits import Commits
    from aiokclient.consumer.state.subscription import SubscriptionState

__all__ = ["GroupRewinder"]

LOOK: Final = Backoff(0.05, 1.0)
"""How often the member that ordered it looks whether it is done."""

STABLE: Final = "Stable"
NOT_CLASSIC: Final = frozenset({GroupIdNotFoundError.code})
"""What DescribeGroups answers for a group of the newer protocol; older versions say "Dead"."""
DEAD: Final = "Dead"


class GroupRewinder:
    """The orders of this member, and what it does about those of others."""

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        commits: Commits,
        in_progress: InProgress,
        *,
        patience_s: float,
        spawn: Callable[..., None],
        check: Callable[[], None],
    ) -> None:
        self.wanted: orders.Orders = {}
        """What this member wants carried out."""
        self._cluster = cluster
        self._subscription = subscription
        self._commits = commits
        self._in_progress = in_progress
        self._patience_s = patience_s
        self._spawn = spawn
        self._check = check
        # By partition as it is owned now: lost and given back, it is another one.
        self._due: dict[PartitionState, dict[str, int]] = {}

    # -- who wants it

    async def order(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout: float,
        rejoin: Callable[[str], None],
    ) -> None:
        """Returns when all owners have sought and committed. ApiTimeoutError: which have not."""
        left = list(offsets)
        if not left:
            return
        clock, order = self._cluster.clock, ""
        try:
            async with asyncio.timeout(timeout):
                await self._commits.until_member()
                await self._refuse_foreigners()
                order = f"{clock.time_ms():012x}{clock.rng.getrandbits(32):08x}"
                self.wanted[order] = dict(offsets)
                rejoin("the group is to be rewound")
                await self._until_done(order, left)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            raise ApiTimeoutError(
                f"These partitions were not rewound within {timeout:.1f} s: "
                f"{', '.join(map(str, left))}. Check that members of the group own them and "
                "request records.",
                api="rewind_group",
            ) from None
        finally:
            self.wanted.pop(order, None)

    async def _until_done(self, order: str, left: list[TopicPartition]) -> None:
        retry = self._looking()
        while True:
            self._check()
            await asyncio.sleep(retry.pause_s())
            found, failed = await self._commits.ask(left)
            for tp, stored in found.items():
                if stored is not None and orders.noted(stored.metadata, order):
                    left.remove(tp)
            if not left:
                return
            for error in failed.values():
                decision = classify(error, Scope.OFFSET_FETCH)
                if decision is Decision.FAIL:
                    raise error
                if decision is Decision.REFRESH_AND_RETRY:
                    self._cluster.coordinators.forget("group", self._commits.group_id)

    def _looking(self) -> Retry:
        """Return the pauses of a loop that the caller's deadline ends."""
        return Retry(math.inf, LOOK, self._cluster.clock)

    async def _refuse_foreigners(self) -> None:
        """Raises if a member would not understand the order."""
        group_id = self._commits.group_id
        retry = self._looking()
        while True:
            self._check()
            group = await self._describe(group_id)
            if group.group_state == STABLE:
                break
            # While it rebalances nobody tells with what the members have joined.
            await asyncio.sleep(retry.pause_s())
        for member in group.members:
            if not orders.is_ours(bytes(member.member_metadata)):
                raise IllegalStateError(
                    f"Group {group_id!r} cannot be rewound. Its member {member.member_id!r} "
                    f"(client {member.client_id!r} at {member.client_host}) uses another library "
                    "or version, which would ignore the request. Stop that member first, or stop "
                    "the group and set its offsets."
                )

    async def _describe(self, group_id: str) -> Any:
        def check(response: Any) -> KafkaError | None:
            group = response.groups[0]
            if group.error_code in NOT_CLASSIC or group.group_state == DEAD:
                return UnsupportedVersionError(
                    f"Group {group_id!r} cannot be rewound: it does not use the classic protocol."
                )
            return error_for(group.error_code, api="DescribeGroups")

        response = await self._cluster.request(
            DescribeGroupsRequest(groups=[group_id]),
            Coordinator("group", group_id),
            scope=Scope.GROUP,
            check=check,
        )
        return response.groups[0]

    # -- who does it

    def carry_out(self, wanted: orders.Orders) -> None:
        """Does what concerns partitions that are owned, in the background. Plain."""
        for order, offsets in wanted.items():
            for tp, offset in offsets.items():
                state = self._subscription.partitions.get(tp)
                if state is None or orders.noted(state.group.note, order):
                    continue
                if state not in self._due:
                    self._due[state] = {}
                    self._subscription.withhold([state], Withheld.REWINDING, True)
                    self._spawn(self._rewind, state, name=f"rewind {tp}")
                self._due[state][order] = offset

    async def _rewind(self, state: PartitionState) -> None:
        try:
            while await self._may(state):
                await self._do(state)
        finally:
            del self._due[state]
            self._subscription.withhold([state], Withheld.REWINDING, False)

    async def _may(self, state: PartitionState) -> bool:
        """Waits for what is in hand, and for what the group knows; False if nothing is due."""
        until = asyncio.get_running_loop().time() + self._patience_s
        self._subscription.settle()
        while self._in_progress.holds([state]):
            if not await self._in_progress.relieved.wait(until):
                return False
        try:
            stored = (await self._commits.fetch([state.tp], self._patience_s))[state.tp]
        except KafkaError as error:
            extra = {"event": "group_rewind_failed", "topic": state.tp.topic}
            self._subscription.client_log.warning(
                "%s cannot be rewound: %s", state.tp, error, extra=extra
            )
            return False
        if stored is not None and not state.group.note:
            state.group.keep_note(orders.note_in(stored.metadata))
        due = self._due[state]
        for order in [order for order in due if orders.noted(state.group.note, order)]:
            del due[order]
        return self._is_ours(state) and bool(due)

    async def _do(self, state: PartitionState) -> None:
        due = self._due[state]
        latest = sorted(due)
        offset = due[latest[-1]]
        extra = {"event": "group_rewound", "topic": state.tp.topic}
        text = "%s goes back to %d: the group is rewound."
        self._subscription.client_log.warning(text, state.tp, offset, extra=extra)
        self._subscription.seek(state.tp, offset, NO_EPOCH)
        state.withhold(Withheld.INITIAL_OFFSET, False)
        for order in latest:
            state.group.keep_note(orders.with_note(state.group.note, order))
        due.clear()
        await self._store(state, OffsetAndMetadata(offset, state.group.note))

    async def _store(self, state: PartitionState, offset: OffsetAndMetadata) -> None:
        """Commits, as long as the partition is owned and there is hope."""
        retry = self._looking()
        while True:
            try:
                return await self._commits.commit({state.tp: offset}, self._patience_s)
            except KafkaError as error:
                extra = {"event": "group_rewind_failed", "topic": state.tp.topic}
                text = "%s is rewound, but the new position was not committed: %s"
                self._subscription.client_log.warning(text, state.tp, error, extra=extra)
                decision = classify(error, Scope.OFFSET_COMMIT)
                if decision is Decision.FAIL or not self._is_ours(state):
                    return
            await asyncio.sleep(retry.pause_s())

    def _is_ours(self, state: PartitionState) -> bool:
        return self._subscription.partitions.get(state.tp) is state
