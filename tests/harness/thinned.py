"""Parts of long series of seeds, moments, and bytes, which `make test-all` tests as a whole."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

IS_WHOLE = bool(os.environ.get("AIOKCLIENT_EXPLORE"))
"""Whether all of each series is tested."""


def one_in(step: int, series: Sequence[T], first: int = 0) -> Sequence[T]:
    """Return each `step`-th item of a series, or all of them with `AIOKCLIENT_EXPLORE`.

    Tests that share a series give different numbers as `first`, and so test other items.
    """
    return series if IS_WHOLE else series[first % step :: step]
