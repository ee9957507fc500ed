"""Named items of work spread over the processes of a group."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Unpack

from aiokclient.cluster.shared_client import ClientLike
from aiokclient.errors import ConfigError, ProtocolError
from aiokclient.group import GroupGeneration, GroupMember, GroupMemberOptions, GroupProtocol
from aiokclient.patterns.spread import Claim, spread

__all__ = ["WorkItems", "work_pool"]

PROTOCOL_TYPE = "aiokclient-work-pool"


class WorkItems:
    """A worker's items in one generation: `async with items as mine` gives their names.

    A scope as that of a generation of `GroupMember`: its body is cancelled when the items are to
    be given up, and has the rebalance timeout to leave; leaving because of it raises nothing.
    """

    def __init__(self, generation: GroupGeneration, names: tuple[str, ...]) -> None:
        self.generation = generation
        self.names = names

    def __repr__(self) -> str:
        return f"WorkItems({', '.join(self.names)})"

    async def __aenter__(self) -> tuple[str, ...]:
        await self.generation.__aenter__()
        return self.names

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self.generation.__aexit__(kind, error, traceback)


class Spreading(GroupProtocol):
    """Says what this worker can do and has; as leader spreads all items."""

    name = "spread-v1"

    def __init__(self, items: Mapping[str, float]) -> None:
        self.items = items
        self.held: tuple[str, ...] = ()
        self.generation = -1

    def metadata(self) -> bytes:
        said = {"items": self.items, "held": self.held, "generation": self.generation}
        return json.dumps(said).encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        shares = spread({member: claim(said) for member, said in members.items()})
        return {member: json.dumps(names).encode() for member, names in shares.items()}

    def got(self, generation: GroupGeneration) -> WorkItems:
        """The items of a generation, remembered so that they stay here in the next."""
        names = tuple(json.loads(generation.assignment or b"[]"))
        self.held, self.generation = names, generation.generation_id
        return WorkItems(generation, names)


def claim(said: bytes) -> Claim:
    """Reads what a worker says; ProtocolError if it is none of this pool's workers."""
    try:
        found: dict[str, Any] = json.loads(said)
        return Claim(dict(found["items"]), tuple(found["held"]), int(found["generation"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(f"{said[:100]!r} is not what a worker of a pool says") from error


def work_pool(
    group: str,
    items: Mapping[str, float],
    *,
    client: ClientLike | None = None,
    **options: Unpack[GroupMemberOptions],
) -> AsyncGenerator[WorkItems, None]:
    """Spreads named items over all processes that ask for the same group.

        async for items in work_pool("crawlers", {"site-a": 1, "site-b": 3}, bootstrap_servers=...):
            async with items as mine:
                ...  # cancelled when the items are to be given up

    Each item belongs to one worker at a time. The load, the sum of the weights, is evened out, and
    items stay with their workers as far as that allows. Workers may list different items: one that
    only some list goes to one of these. Whenever a worker comes or goes, all get their items anew;
    it goes on until the loop is left, and then leaves the group. If the loop is left by `break` or
    an exception, the event loop finishes it a moment later, and not at all if it ends itself: then
    the group waits for the session timeout. `contextlib.aclosing` around the pool does it at once.

    Options are those of `GroupMember`; it raises what iterating over generations does, and
    ConfigError for a weight that is no positive number.
    """
    spreading = Spreading(weighed(items))
    member = GroupMember(
        group, protocol_type=PROTOCOL_TYPE, protocols=[spreading], client=client, **options
    )
    return _items(member, spreading)


async def _items(member: GroupMember, spreading: Spreading) -> AsyncGenerator[WorkItems, None]:
    async with member:
        async for generation in member.generations():
            yield spreading.got(generation)


def weighed(items: Mapping[str, float]) -> dict[str, float]:
    """A copy of the items, each name and weight checked."""
    if not isinstance(items, Mapping):
        raise ConfigError(f"items: {items!r} is not a mapping from names to weights")
    for name, weight in items.items():
        if not isinstance(name, str):
            raise ConfigError(f"items: {name!r} is not a name")
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (number and math.isfinite(weight) and weight > 0):
            raise ConfigError(f"items: {weight!r} is not a weight of {name!r}; it must be above 0")
    return dict(items)
