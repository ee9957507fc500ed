"""The assignor of share groups, `simple`: it balances members, not only partitions (KIP-932).

All partitions of members with the same subscription have the same number of members: one if there
are enough partitions for all members, otherwise as many as each member needs to have at least one.
Then the members are balanced. What balance allows stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.testing.broker.groups.server_assignors import (
    PartitionId,
    PartitionIds,
    Sizes,
    Subscribers,
)


def assign_simple(members: Subscribers, sizes: Sizes) -> dict[str, PartitionIds]:
    """Return the partitions of each member. `sizes` has the topics whose state is initialized."""
    given: dict[str, set[PartitionId]] = {each: set() for each in members}
    alike: dict[frozenset[object], list[str]] = {}
    for member_id, member in members.items():
        alike.setdefault(frozenset(each for each in member.topics if each in sizes), []).append(
            member_id
        )
    for topics, member_ids in alike.items():
        partitions = [
            PartitionId(topic, index)
            for topic in sorted(sizes)
            if topic in topics
            for index in range(sizes[topic])
        ]
        if partitions:
            before = {each: members[each].target for each in member_ids}
            for member_id, chosen in _assign_alike(member_ids, partitions, before).items():
                given[member_id] |= chosen
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _assign_alike(
    member_ids: list[str], partitions: list[PartitionId], before: Mapping[str, PartitionIds]
) -> dict[str, set[PartitionId]]:
    """Assign partitions to members that subscribe to the same topics."""
    holders_of_each = -(-len(member_ids) // len(partitions))
    least, extra = divmod(holders_of_each * len(partitions), len(member_ids))
    given: dict[str, set[PartitionId]] = {each: set() for each in member_ids}
    holders = dict.fromkeys(partitions, 0)
    # Members that have more than the minimum keep one more, while such extra partitions exist.
    kept = {each: sorted(before[each] & holders.keys()) for each in member_ids}
    by_size = sorted(member_ids, key=lambda each: len(kept[each]) <= least)
    quota = {each: least + (index < extra) for index, each in enumerate(by_size)}
    for member_id, earlier in kept.items():
        for each in earlier:
            if len(given[member_id]) < quota[member_id] and holders[each] < holders_of_each:
                holders[each] += 1
                given[member_id].add(each)
    for each in sorted(partitions, key=lambda one: (holders[one], one)):
        while holders[each] < holders_of_each:
            without = [one for one in given if each not in given[one]]
            member_id = min(without, key=lambda one: len(given[one]) - quota[one])
            given[member_id].add(each)
            holders[each] += 1
    return given
