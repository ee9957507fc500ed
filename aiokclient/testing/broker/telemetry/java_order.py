"""The order in which Java's hash collections iterate over strings.

A broker sends the subscribed metrics in the order of a HashSet, and computes the subscription id
from the text of that set. The set is filled from the subscriptions in the order of a
ConcurrentHashMap. So the order is part of what a client sees.

Java turns a bucket with nine or more elements into a tree, which changes its order. That is not
reproduced here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, MutableMapping
from typing import TypeVar

V = TypeVar("V")

_SMALLEST = 16
"""The number of buckets of a table that was not given a size."""


def java_string_hash(text: str) -> int:
    """Return the hash code of a string, as an unsigned number of 32 bits."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _spread_hash(text: str) -> int:
    """Return the number whose lowest bits select the bucket of a string."""
    value = java_string_hash(text)
    return value ^ value >> 16


def order_as_hash_set(names: Iterable[str], *, copied: bool = False) -> list[str]:
    """Return names in the order of a HashSet to which they were added one by one.

    Set `copied` if the HashSet was constructed from a collection without duplicates. Such a set has
    enough buckets for all of its elements from the beginning.
    """
    unique = list(dict.fromkeys(names))
    buckets = _SMALLEST
    if copied:
        wanted = int(len(unique) / 0.75) + 1
        while buckets < wanted:
            buckets *= 2
    while len(unique) > 0.75 * buckets:
        buckets *= 2
    return sorted(unique, key=lambda name: _spread_hash(name) & buckets - 1)


class ConcurrentHashMap(MutableMapping[str, V]):
    """A mapping that iterates over its keys like Java's ConcurrentHashMap, also after removals."""

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._buckets: list[list[str]] = [[] for _ in range(_SMALLEST)]

    def __getitem__(self, key: str) -> V:
        return self._values[key]

    def __setitem__(self, key: str, value: V) -> None:
        if key not in self._values:
            self._find_bucket(key).append(key)
        self._values[key] = value
        while len(self._values) >= 0.75 * len(self._buckets):
            self._double_table()

    def __delitem__(self, key: str) -> None:
        del self._values[key]
        self._find_bucket(key).remove(key)

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return len(self._values)

    def _find_bucket(self, key: str) -> list[str]:
        return self._buckets[_spread_hash(key) & len(self._buckets) - 1]

    def _double_table(self) -> None:
        """Double the table. Java reverses each half of a bucket, except for its last elements."""
        bit = len(self._buckets)
        halves = [_split_bucket(bucket, bit) for bucket in self._buckets]
        self._buckets = [low for low, _ in halves] + [high for _, high in halves]


def _split_bucket(bucket: Collection[str], bit: int) -> tuple[list[str], list[str]]:
    """Return the elements of a bucket that stay, and those that move to the new half."""
    keys = list(bucket)
    sides = [bool(_spread_hash(key) & bit) for key in keys]
    # Java does not copy the elements at the end that go to the same half, so they keep their order.
    # It puts copies of all others before them, one by one, which reverses their order.
    last = len(keys)
    while last and sides[last - 1] == sides[-1]:
        last -= 1
    halves: tuple[list[str], list[str]] = ([], [])
    for key, side in zip(keys[:last], sides[:last], strict=True):
        halves[side].insert(0, key)
    if keys:
        halves[sides[-1]].extend(keys[last:])
    return halves
