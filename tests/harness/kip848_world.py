"""A simulated cluster with members of one group under KIP-848."""

from collections.abc import Callable, Coroutine
from typing import Any

from kip848_member import Member, Owners
from owned import SETTLED_S, View, are_undisturbed, check_owned
from world import World, simulate

from aiokclient.protocol import ApiKey

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


class CheckedMember(Member):
    """A member that checks its group at the end of its `async with` block, before it closes."""

    group: "Group"

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            await self.group.check_owned(self)
        await super().__aexit__(*error)


class Group:
    """A factory for members of one group. At its end, no partition may have had two owners."""

    def __init__(self, world: World) -> None:
        self.world, self.owners = world, Owners()
        self.cluster = world.cluster
        self.members: list[Member] = []
        self.checked = True
        """Whether the owners of all partitions are checked when a member closes."""
        self._count = 0

    def member(self, **options: Any) -> Member:
        """Return a member. At the end of its block, the owners of all partitions are checked."""
        self._count += 1
        name = f"m{self._count}"
        member = CheckedMember(self.world.options(), self.owners, name, **options)
        member.group = self
        self.members.append(member)
        return member

    async def check_owned(self, member: Member) -> None:
        """Check that the partitions of the members' subscriptions are owned once.

        This is only so while no fault is active, and while all members can revoke partitions.
        """
        members = [each for each in self.members if each.running]
        free = all(each.reading.hold.is_set() for each in members)
        if self.checked and member in members and free and are_undisturbed(self.world):
            await check_owned(self.world, lambda: [self._view(m) for m in members], "g", SETTLED_S)

    def _view(self, member: Member) -> View:
        member_id, topics = member.membership.metadata.member_id, self.cluster.topics
        named = frozenset(topic for topic in topics if member.reads_topic(topic))
        return View(member_id, named, frozenset(member.reading.has))

    def beats(self, since: float = 0.0) -> list[Any]:
        return [each.message for each in self.world.requests(HEARTBEAT, since)]

    @property
    def view(self) -> Any:
        return self.cluster.groups["g"]


def run(
    scenario: Callable[[Group], Coroutine[Any, Any, None]],
    *,
    topics: dict[str, int] | None = None,
    **options: Any,
) -> None:
    async def main(world: World) -> None:
        group = Group(world)
        await scenario(group)
        assert group.owners.breaches == []
        assert group.owners.of == {}

    simulate(main, topics={"t": 4} if topics is None else topics, **options)
