"""Telling the program's listener about partitions."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from aiokclient.types import TopicPartition

__all__ = ["tell"]


async def tell(listener: Any, method: str, partitions: Sequence[TopicPartition]) -> None:
    """Calls `listener.method(partitions)`, plain or async, if there is such a method.

    Not for no partitions at all. What it raises comes out.
    """
    call = getattr(listener, method, None)
    if call is not None and partitions:
        answer = call(partitions)
        if inspect.isawaitable(answer):
            await answer
