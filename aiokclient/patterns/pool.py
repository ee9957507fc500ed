"""Named items of work, assigned to the processes of a group.

Items are assigned so that few items move: each item stays with its worker if the worker is still a
member. Items without a worker are assigned to the worker with the least load, the heaviest items
first. Then items move from the worker with the most load to another one, as long as that balances
the two. If nothing has changed, nothing moves.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Unpack

from aiokclient.cluster.lifecycle.parent import Parent
from aiokclient.errors import ConfigError, ProtocolError
from aiokclient.errors.local import ConfigTypeError
from aiokclient.group.generation import GroupGeneration, GroupProtocol
from aiokclient.group.member import GroupMember
from aiokclient.group.options import GroupMemberConfig, GroupMemberOptions
from aiokclient.types import public_in, shortened
from aiokclient.types.named_tuple import NamedTuple

PROTOCOL_TYPE = "aiokclient-work-pool"


@public_in("aiokclient.patterns")
class WorkItems:
    """The items of a worker in one generation. `async with items as mine` returns their names.

    It is a scope like that of a generation of `GroupMember`: its body is cancelled when the items
    are revoked, and must end within the rebalance timeout. This cancellation raises nothing outside
    the body.
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
    """The group protocol: each worker sends its items, and the leader assigns all items."""

    name = "spread-v1"

    def __init__(self, items: Mapping[str, float]) -> None:
        self.items = items
        self.held_items: tuple[str, ...] = ()
        self.generation = -1

    def metadata(self) -> bytes:
        said = {"items": self.items, "held": self.held_items, "generation": self.generation}
        return json.dumps(said).encode()

    def assign(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        shares = spread_items({member: decode_claim(said) for member, said in members.items()})
        return {member: json.dumps(names).encode() for member, names in shares.items()}

    def take_items(self, generation: GroupGeneration) -> WorkItems:
        """Return the items of a generation, and keep them as the claim for the next one."""
        names = tuple(json.loads(generation.assignment or b"[]"))
        self.held_items, self.generation = names, generation.generation_id
        return WorkItems(generation, names)


def decode_claim(said: bytes) -> Claim:
    """Decode the claim of a worker. Raises ProtocolError for a member that is not a worker."""
    try:
        decoded: dict[str, Any] = json.loads(said)
        items = {str(name): _weight(weight) for name, weight in dict(decoded["items"]).items()}
        return Claim(items, tuple(map(str, decoded["held"])), int(decoded["generation"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ProtocolError(
            f"A member of the group sent {said[:100]!r}, which is not the claim of a worker. "
            "Stop that member, or use another group for the work pool."
        ) from error


def work_pool(
    group: str,
    items: Mapping[str, float],
    *,
    client: Parent | None = None,
    **options: Unpack[GroupMemberOptions],
) -> AsyncGenerator[WorkItems, None]:
    """Assign named items to all processes in the same group.

        async for items in work_pool("crawlers", {"site-a": 1, "site-b": 3}, bootstrap_servers=...):
            async with items as mine:
                ...  # cancelled when the items are revoked

    Each item belongs to one worker at a time. The load, which is the sum of the weights, is
    balanced, and items stay with their workers as far as that allows. Workers may list different
    items: an item that only some workers list goes to one of these. When a worker joins or leaves,
    all items are assigned again. The worker leaves the group when the loop ends. After `break` or
    an exception, it leaves a moment later, and if the event loop ends before that, the group waits
    for the session timeout. Use `contextlib.aclosing` around the pool to leave immediately.

    The options are those of `GroupMember`. Raises the errors of iterating over generations, and
    ConfigError for a weight that is not positive or for a wrong type. If the items, a name, or a
    weight have the wrong type, the error is also a TypeError.
    """
    GroupMemberConfig.hide_options(options)
    spreading = Spreading(checked_items(items))
    member = GroupMember(
        group, protocol_type=PROTOCOL_TYPE, protocols=[spreading], client=client, **options
    )
    return _items(member, spreading)


async def _items(member: GroupMember, spreading: Spreading) -> AsyncGenerator[WorkItems, None]:
    async with member:
        async for generation in member.generations():
            yield spreading.take_items(generation)


def checked_items(items: Mapping[str, float]) -> dict[str, float]:
    """Return a copy of the items.

    Raises ConfigError for a weight that is not positive and finite, and ConfigTypeError for items,
    a name, or a weight of the wrong type.
    """
    if not isinstance(items, Mapping):
        raise ConfigTypeError(f"items: {items!r} is not a mapping from names to weights.")
    for name, weight in items.items():
        if not isinstance(name, str):
            raise ConfigTypeError(f"items: {name!r} is not a name. Each name must be a str.")
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        try:
            _weight(weight)
        except (TypeError, ValueError, OverflowError):
            kind = ConfigError if number else ConfigTypeError
            raise kind(
                f"items: {shortened(weight)} is not a weight for {shortened(name)}. It must be a "
                "number above 0 that a float can express."
            ) from None
    return dict(items)


def _weight(given: Any) -> float:
    """Return a weight. Raises TypeError, ValueError, or OverflowError if it cannot be one."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError
    if not (math.isfinite(given) and given > 0):
        raise ValueError
    return given


class Claim(NamedTuple):
    """The claim of a worker: the items that it lists, with their weights, and those that it holds.

    The held items were assigned in `generation`. If two workers hold an item, the higher generation
    counts.
    """

    items: Mapping[str, float]
    held: tuple[str, ...] = ()
    generation: int = -1


def spread_items(claims: Mapping[str, Claim]) -> dict[str, list[str]]:
    """Return the items of each worker, sorted. Only a worker that lists an item gets it.

    If workers list different weights for an item, the greatest one counts.
    """
    weights: dict[str, float] = {}
    for claim in claims.values():
        for item, weight in claim.items.items():
            weights[item] = max(weight, weights.get(item, weight))
    workers = {item: [w for w in sorted(claims) if item in claims[w].items] for item in weights}
    shares = _Shares(sorted(claims), weights, workers)
    holders = _find_holders(claims)
    for item in sorted(weights):
        if item in holders:
            shares.give_item(item, holders[item])
    for item in sorted(weights, key=lambda item: (-weights[item], item)):
        if item not in holders:
            shares.give_item(item, shares.lightest_worker(workers[item]))
    shares.even_out()
    return {worker: sorted(items) for worker, items in shares.items.items()}


def _find_holders(claims: Mapping[str, Claim]) -> dict[str, str]:
    holders: dict[str, str] = {}
    for worker in sorted(claims, key=lambda worker: (claims[worker].generation, worker)):
        claim = claims[worker]
        holders.update({item: worker for item in claim.held if item in claim.items})
    return holders


class _Shares:
    def __init__(
        self, names: list[str], weights: Mapping[str, float], workers: Mapping[str, list[str]]
    ) -> None:
        self.items: dict[str, list[str]] = {name: [] for name in names}
        self._loads = dict.fromkeys(names, 0.0)
        self._weights = weights
        self._workers = workers

    def give_item(self, item: str, worker: str) -> None:
        self.items[worker].append(item)
        self._loads[worker] += self._weights[item]

    def lightest_worker(self, workers: list[str]) -> str:
        return min(workers, key=lambda worker: (self._loads[worker], len(self.items[worker])))

    def even_out(self) -> None:
        while any(self._relieve_worker(worker) for worker in self._heaviest_first()):
            pass

    def _heaviest_first(self) -> list[str]:
        return sorted(self.items, key=lambda worker: (-self._loads[worker], worker))

    def _relieve_worker(self, worker: str) -> bool:
        """Move the item that balances the load best. Return whether there was such an item."""
        best: tuple[float, str, str] | None = None
        for item in self.items[worker]:
            weight, to = self._weights[item], self.lightest_worker(self._workers[item])
            gap = self._loads[worker] - self._loads[to]
            # The decrease of the sum of squares. A tiny decrease is only a rounding error.
            gain = weight * (gap - weight)
            if gain > 1e-9 * max(weight, 1.0) and (best is None or gain > best[0]):
                best = (gain, item, to)
        if best is None:
            return False
        _, item, to = best
        self.items[worker].remove(item)
        self._loads[worker] -= self._weights[item]
        self.give_item(item, to)
        return True
