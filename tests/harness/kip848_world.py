"""A simulated cluster with members of one group under KIP-848."""

from collections.abc import Callable, Coroutine
from typing import Any

from kip848_member import Member, Owners
from world import World, simulate

from aiokclient.protocol import ApiKey

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
ALL = [("t", 0), ("t", 1), ("t", 2), ("t", 3)]


class Group:
    """A factory for members of one group. At its end, no partition may have had two owners."""

    def __init__(self, world: World) -> None:
        self.world, self.owners = world, Owners()
        self.cluster = world.cluster
        self._count = 0

    def member(self, **options: Any) -> Member:
        self._count += 1
        return Member(self.world.options(), self.owners, f"m{self._count}", **options)

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
