"""The result of `Consumer.stop()`. To await it raises an error with what to write instead."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

__all__ = ["STOPPED"]


class _Stopped:
    """A value like None, which explains itself when it is awaited, as with aiokafka."""

    def __await__(self) -> Generator[Any, None, None]:
        raise TypeError(
            "stop() is synchronous: it ends the iterations and returns immediately. To commit, "
            "leave the group and disconnect, write `await consumer.close()`, or use `async with`."
        )

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "None"


STOPPED: Final = cast(None, _Stopped())
