"""The application's serializers, which convert keys and values to bytes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from aiokclient.errors import ApiTimeoutError, KafkaError, SerializationError
from aiokclient.types import Headers, Serializer

Serialize = Callable[[str, Any, Headers], bytes | None]


def bound(serializer: Any, what: str) -> Serialize | None:
    """Return a function that calls a serializer, or None if there is no serializer.

    The function raises SerializationError for any error of the serializer, with that error as its
    cause. `what` is "key" or "value".
    """
    if serializer is None:
        return None
    if isinstance(serializer, Serializer):
        call: Callable[[str, Any, Headers], Any] = serializer.serialize
    else:

        def call(topic: str, value: Any, headers: Headers) -> Any:
            return serializer(value)

    hint = ""
    if hasattr(serializer, "prepare"):
        hint = " Has `await producer.prepare(topic)` been called?"

    def serialize(topic: str, value: Any, headers: Headers) -> bytes | None:
        try:
            result = call(topic, value, headers)
        except (KafkaError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # A CancelledError would pass for one of the caller.
            text = f"The {what} serializer failed for a record of topic {topic}: {error!r}.{hint}"
            raise SerializationError(text) from error
        if not isinstance(result, bytes) and (result is not None or value is not None):
            kind = type(result).__name__
            raise SerializationError(f"The {what} serializer returned {kind}, not bytes.")
        return result

    return serialize


def preparations(*serializers: Any) -> list[Callable[[str], Awaitable[object]]]:
    """Return the `prepare` methods of the serializers that have one."""
    found = (getattr(serializer, "prepare", None) for serializer in serializers)
    return [prepare for prepare in found if prepare is not None]


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled.

    If it is not, a CancelledError comes from a cancelled future that the application's code awaits.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


async def prepare_serializer(
    prepare: Callable[[str], Awaitable[object]], topic: str, timeout: float
) -> None:
    """Await the `prepare` of a serializer; see `Producer.prepare`."""
    scope = asyncio.timeout(None if timeout == math.inf else timeout)
    try:
        async with scope:
            await prepare(topic)
    except KafkaError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        if scope.expired():
            text = f"A serializer was not prepared for topic {topic} within the timeout."
            raise ApiTimeoutError(text) from error
        text = f"A serializer could not be prepared for topic {topic}: {error!r}."
        raise SerializationError(text) from error
