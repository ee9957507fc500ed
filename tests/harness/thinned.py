"""Parts of long series of seeds, moments, and bytes, which `make test-all` tests as a whole."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, TypeVar
from zlib import crc32

import pytest

T = TypeVar("T")

IS_WHOLE = bool(os.environ.get("AIOKCLIENT_EXPLORE"))
"""Whether all of each series is tested."""


def one_in(step: int, series: Sequence[T], first: int = 0) -> Sequence[T]:
    """Return each `step`-th item of a series, or all of them with `AIOKCLIENT_EXPLORE`.

    Tests that share a series give different numbers as `first`, and so test other items.
    """
    return series if IS_WHOLE else series[first % step :: step]


def in_turns(step: int, *dimensions: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return each `step`-th combination of the dimensions, or all with `AIOKCLIENT_EXPLORE`.

    These are the combinations whose indexes have a sum that `step` divides. So the values of a
    dimension with `step` values take turns: each combination of the other dimensions is tested with
    one of them.
    """
    found = product(*(enumerate(dimension) for dimension in dimensions))
    return [
        tuple(value for _, value in each)
        for each in found
        if IS_WHOLE or sum(index for index, _ in each) % step == 0
    ]


def omitted_rows(step: int, items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return what remains of the items without each `step`-th row of each test with parameters.

    At least one row of each test is left in place. Which ones depends on the name of the test, so
    that tests with the same parameters have different ones.
    """
    rows: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        rows[item.nodeid.partition("[")[0]].append(item)
    omitted = []
    for name, each in rows.items():
        first = crc32(name.encode()) % min(step, len(each))
        omitted += [item for index, item in enumerate(each) if index % step != first]
    return omitted
