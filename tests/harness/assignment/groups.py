"""Random groups and their changes: members join and leave, topics grow, subscriptions change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from aiokclient import AssignmentCluster, MemberAssignment, MemberSubscription
from aiokclient.consumer.assignors.holdings import Holding, sticky_data

RACKS = ("a", "b", "c")


@dataclass(frozen=True)
class Group:
    """The topics of a cluster, and the members that subscribe to them."""

    cluster: AssignmentCluster
    members: Mapping[str, MemberSubscription]


@dataclass(frozen=True)
class Size:
    """The minimum and maximum of each property of a random group."""

    topics: tuple[int, int] = (1, 6)
    partitions: tuple[int, int] = (0, 8)
    members: tuple[int, int] = (1, 8)


SMALL = Size()
LARGE = Size(topics=(15, 25), partitions=(5, 30), members=(20, 30))


@dataclass(frozen=True)
class Regrouping:
    """A group before and after a change. The members do not own anything yet."""

    before: Group
    after: Group


def random_group(
    rng: Random, *, racks: bool = False, equal: bool | None = None, size: Size = SMALL
) -> Group:
    """Return a random group. With `equal`, all members subscribe to the same topics."""
    count = rng.randint(*size.topics)
    topics = {f"topic-{index}": rng.randint(*size.partitions) for index in range(count)}
    cluster = AssignmentCluster({name: _partitions(rng, n, racks) for name, n in topics.items()})
    if equal is None:
        equal = rng.random() < 0.3
    names = [*topics, "absent"]
    same = _some(rng, names)
    members = {
        f"member-{rng.randrange(10**6)}": MemberSubscription(
            topics=same if equal else _some(rng, names),
            rack=rng.choice((*RACKS, None)) if racks else None,
            instance_id=f"instance-{rng.randrange(10**6)}" if rng.random() < 0.2 else None,
        )
        for _ in range(rng.randint(*size.members))
    }
    return Group(cluster, members)


def _partitions(rng: Random, count: int, racks: bool) -> list[set[str]]:
    copies = rng.randint(1, len(RACKS))
    return [set(rng.sample(RACKS, copies)) if racks else set() for _ in range(count)]


def _some(rng: Random, names: list[str]) -> tuple[str, ...]:
    return tuple(rng.sample(names, rng.randint(1, len(names))))


def random_regrouping(
    rng: Random, *, racks: bool = False, equal: bool | None = None, size: Size = SMALL
) -> Regrouping:
    """Return a group whose members leave, join, or subscribe again, or whose topics change."""
    before = random_group(rng, racks=racks, equal=equal, size=size)
    other = random_group(rng, racks=racks, equal=equal, size=size)
    after = before
    for change in rng.sample((_leave, _join, _subscribe, _grow), rng.randint(1, 2)):
        if change is not _subscribe or not equal:
            after = change(rng, after, other, bool(equal))
    return Regrouping(before, after)


def _leave(rng: Random, group: Group, other: Group, equal: bool) -> Group:
    staying = rng.sample(sorted(group.members), rng.randint(1, len(group.members)))
    return replace(group, members={name: group.members[name] for name in staying})


def _join(rng: Random, group: Group, other: Group, equal: bool) -> Group:
    members = dict(group.members)
    topics = next(iter(members.values())).topics
    for name, member in other.members.items():
        members[name] = member._replace(topics=topics) if equal else member
    return replace(group, members=members)


def _subscribe(rng: Random, group: Group, other: Group, equal: bool) -> Group:
    members = dict(group.members)
    for name in rng.sample(sorted(members), rng.randint(1, len(members))):
        members[name] = members[name]._replace(topics=_some(rng, [*group.cluster.topics, "absent"]))
    return replace(group, members=members)


def _grow(rng: Random, group: Group, other: Group, equal: bool) -> Group:
    """Return the group with some topics removed, and with partitions added to others."""
    grown = {}
    for topic in group.cluster.topics:
        racks = [group.cluster.racks(one) for one in group.cluster.partitions(topic)]
        if rng.random() < 0.9:
            more = [other.cluster.racks(one) for one in other.cluster.partitions(topic)]
            grown[topic] = racks + more[: rng.randrange(4)]
    return replace(group, cluster=AssignmentCluster(grown))


def carried(
    group: Group, given: Mapping[str, MemberAssignment], generation: int, *, eager: bool
) -> Group:
    """Return the same group, in which the members own the given partitions.

    With `eager`, the members report these partitions in their user data.
    """

    def holding(name: str, member: MemberSubscription) -> MemberSubscription:
        if name not in given:
            return member
        partitions = given[name].partitions
        if eager:
            data = sticky_data(Holding(partitions, generation))
            return member._replace(user_data=data, generation_id=generation)
        return member._replace(owned=partitions, generation_id=generation)

    members = {name: holding(name, member) for name, member in group.members.items()}
    return replace(group, members=members)
