"""The result of `Consumer.stop()`, which raises an error with the correct code when awaited."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, cast

__all__ = ["STOPPED"]


class _Stopped:
    """A value like None that raises TypeError when awaited, because aiokafka's `stop` is async."""

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
