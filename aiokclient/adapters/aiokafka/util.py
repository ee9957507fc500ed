"""Small functions that programs for aiokafka import."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

INTEGER_MAX_VALUE = 2**31 - 1
INTEGER_MIN_VALUE = -(2**31)


def create_task(coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Start a coroutine in the running event loop."""
    return get_running_loop().create_task(coro)


def create_future(loop: asyncio.AbstractEventLoop | None = None) -> asyncio.Future[Any]:
    """Return a future of an event loop, by default of the running one."""
    return (loop or get_running_loop()).create_future()


def get_running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or raise RuntimeError."""
    return asyncio.get_running_loop()


def parse_kafka_version(api_version: str) -> tuple[int, int, int]:
    """Return the parts of a version such as "2.8". Raises ValueError for another text."""
    parts = [int(part) for part in api_version.split(".")]
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"{api_version!r} is not the version of a broker.")
    return (parts[0], parts[1], parts[2] if len(parts) == 3 else 0)
