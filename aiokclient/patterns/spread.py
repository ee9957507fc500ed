"""The assignment of weighted items to workers, so that few items move. Sans-IO.

Each item stays with its worker if the worker is still a member. Items without a worker are assigned
to the worker with the least load, the heaviest items first. Then items move from the worker with
the most load to another one, as long as that balances the two. If nothing has changed, nothing
moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Claim", "spread"]


class Claim(NamedTuple):
    """The claim of a worker: the items that it lists, with their weights, and those that it holds.

    The held items were assigned in `generation`. If two workers hold an item, the higher generation
    counts.
    """

    items: Mapping[str, float]
    held: tuple[str, ...] = ()
    generation: int = -1


def spread(claims: Mapping[str, Claim]) -> dict[str, list[str]]:
    """Return the items of each worker, sorted. Only a worker that lists an item gets it.

    If workers list different weights for an item, the greatest one counts.
    """
    weights: dict[str, float] = {}
    for claim in claims.values():
        for item, weight in claim.items.items():
            weights[item] = max(weight, weights.get(item, weight))
    workers = {item: [w for w in sorted(claims) if item in claims[w].items] for item in weights}
    shares = _Shares(sorted(claims), weights, workers)
    holders = _holders(claims)
    for item in sorted(weights):
        if item in holders:
            shares.give(item, holders[item])
    for item in sorted(weights, key=lambda item: (-weights[item], item)):
        if item not in holders:
            shares.give(item, shares.lightest(workers[item]))
    shares.even_out()
    return {worker: sorted(items) for worker, items in shares.items.items()}


def _holders(claims: Mapping[str, Claim]) -> dict[str, str]:
    found: dict[str, str] = {}
    for worker in sorted(claims, key=lambda worker: (claims[worker].generation, worker)):
        claim = claims[worker]
        found.update({item: worker for item in claim.held if item in claim.items})
    return found


class _Shares:
    def __init__(
        self, names: list[str], weights: Mapping[str, float], workers: Mapping[str, list[str]]
    ) -> None:
        self.items: dict[str, list[str]] = {name: [] for name in names}
        self._load = dict.fromkeys(names, 0.0)
        self._weights = weights
        self._workers = workers

    def give(self, item: str, worker: str) -> None:
        self.items[worker].append(item)
        self._load[worker] += self._weights[item]

    def lightest(self, workers: list[str]) -> str:
        return min(workers, key=lambda worker: (self._load[worker], len(self.items[worker])))

    def even_out(self) -> None:
        while any(self._relieve(worker) for worker in self._heaviest_first()):
            pass

    def _heaviest_first(self) -> list[str]:
        return sorted(self.items, key=lambda worker: (-self._load[worker], worker))

    def _relieve(self, worker: str) -> bool:
        """Move the item that balances the load best. Return whether there was such an item."""
        best: tuple[float, str, str] | None = None
        for item in self.items[worker]:
            weight, to = self._weights[item], self.lightest(self._workers[item])
            gap = self._load[worker] - self._load[to]
            # The decrease of the sum of squares. A tiny decrease is only a rounding error.
            gain = weight * (gap - weight)
            if gain > 1e-9 * max(weight, 1.0) and (best is None or gain > best[0]):
                best = (gain, item, to)
        if best is None:
            return False
        _, item, to = best
        self.items[worker].remove(item)
        self._load[worker] -= self._weights[item]
        self.give(item, to)
        return True
