"""The check of an assignor's result before it is sent, because errors harm the whole group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiokclient.consumer.assignors.assignor import (
    AssignmentCluster,
    Assignor,
    MemberAssignment,
    MemberSubscription,
    RebalanceProtocol,
)
from aiokclient.errors import AssignmentFailedError
from aiokclient.types import TopicPartition


def validate(
    assignor: Assignor,
    given: Mapping[str, MemberAssignment],
    cluster: AssignmentCluster,
    members: Mapping[str, MemberSubscription],
    protocol: RebalanceProtocol = RebalanceProtocol.EAGER,
) -> dict[str, MemberAssignment]:
    """Return the assignment of every member, in the order of `members`, after checking them all.

    A member that `given` omits is assigned no partitions. Raises AssignmentFailedError, which
    names the assignor, the partition, and the remedy, in these cases:

    - `given` is not a mapping from member ids of the group to assignments.
    - A partition does not exist, or the member does not subscribe to its topic.
    - A partition is assigned to two members, and the assignor is not `overlapping`.
    - With the cooperative protocol, a partition is assigned to one member while another member
      reports that partition as its own.
    """
    check = _Check(assignor, cluster, members)
    check.check_types(given)
    found = {name: given.get(name, MemberAssignment()) for name in members}
    for name, assignment in found.items():
        check.check_partitions(name, assignment)
    if not assignor.overlapping:
        check.check_single_members(found)
    if protocol is RebalanceProtocol.COOPERATIVE:
        check.check_revocations(found)
    return {
        name: one._replace(partitions=tuple(dict.fromkeys(one.partitions)))
        for name, one in found.items()
    }


class _Check:
    def __init__(
        self,
        assignor: Assignor,
        cluster: AssignmentCluster,
        members: Mapping[str, MemberSubscription],
    ) -> None:
        self._what = f"Assignor {assignor.name!r} ({type(assignor).__qualname__})"
        self._cluster = cluster
        self._members = members

    def check_types(self, given: object) -> None:
        if not isinstance(given, Mapping):
            raise AssignmentFailedError(
                f"{self._what} returned {_kind(given)}. Return a mapping from member id to "
                "MemberAssignment."
            )
        for name, assignment in given.items():
            if name not in self._members:
                raise AssignmentFailedError(
                    f"{self._what} gave partitions to {name!r}, which is not a member of the "
                    "group. Give partitions to the members that assign() is called with."
                )
            self._check_type(name, assignment)

    def _check_type(self, name: str, assignment: object) -> None:
        if isinstance(assignment, MemberAssignment):
            wrong = _wrong(*assignment)
        else:
            wrong = _kind(assignment)
        if wrong:
            raise AssignmentFailedError(
                f"{self._what} gave member {name!r} {wrong}. Give a MemberAssignment: a tuple of "
                "TopicPartition, and bytes or None as user data."
            )

    def check_partitions(self, name: str, assignment: MemberAssignment) -> None:
        """Check that the partitions exist and that the member subscribes to their topics."""
        topics = set(self._members[name].topics)
        for partition in assignment.partitions:
            topic, count = partition.topic, self._cluster.count(partition.topic)
            if partition not in self._cluster:
                has = f"{topic!r} has {count} partitions" if count else f"there is no {topic!r}"
                advice = f"but {has}. Give only partitions that cluster.partitions() returns"
                raise self._make_error(partition, name, advice)
            if topic not in topics:
                advice = "but this member does not subscribe to it. Look at its `topics`"
                raise self._make_error(partition, name, advice)

    def check_single_members(self, given: Mapping[str, MemberAssignment]) -> None:
        has: dict[TopicPartition, str] = {}
        for name, partition in _pairs(given):
            if (other := has.setdefault(partition, name)) != name:
                advice = (
                    f"and to {other!r}. Give it to one of them, or set `overlapping = True` on "
                    "the assignor if that is meant"
                )
                raise self._make_error(partition, name, advice)

    def check_revocations(self, given: Mapping[str, MemberAssignment]) -> None:
        """Check that no partition moves from one member to another in one rebalance."""
        holders: dict[TopicPartition, list[str]] = {}
        for name, member in self._members.items():
            for partition in member.owned:
                holders.setdefault(partition, []).append(name)
        for name, partition in _pairs(given):
            others = holders.get(partition, [])
            if others and name not in others:
                advice = (
                    f"while {others[0]!r} still owns it. Give it to no member now, and to this one "
                    "in the next rebalance, or set `cooperative = False` on the assignor"
                )
                raise self._make_error(partition, name, advice)

    def _make_error(
        self, partition: TopicPartition, name: str, advice: str
    ) -> AssignmentFailedError:
        return AssignmentFailedError(
            f"{self._what} gave {partition} to member {name!r}, {advice}.",
            topic_partition=partition,
        )


def _pairs(given: Mapping[str, MemberAssignment]) -> Iterator[tuple[str, TopicPartition]]:
    for name, assignment in given.items():
        for partition in assignment.partitions:
            yield name, partition


def _wrong(partitions: object, user_data: object) -> str:
    """Return a description of the first wrong type in an assignment, or an empty string."""
    if not isinstance(user_data, bytes | None):
        return f"user data that is {_kind(user_data)}"
    if not isinstance(partitions, tuple | list):
        return f"partitions that are {_kind(partitions)}"
    others = [one for one in partitions if not _is_partition(one)]
    return f"{others[0]!r} as a partition" if others else ""


def _is_partition(value: object) -> bool:
    if not isinstance(value, TopicPartition):
        return False
    topic, index = value
    return isinstance(topic, str) and isinstance(index, int)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__qualname__}"
