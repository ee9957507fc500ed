"""The application's serializers, which convert keys and values to bytes."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from aiokclient.errors import ApiTimeoutError, KafkaError, SerializationError
from aiokclient.producer.send_many import as_headers
from aiokclient.scopes import is_cancelled
from aiokclient.types import Headers, Serialized, Serializer, bind_to_part

Serialize = Callable[[str, Any, Headers], bytes | Serialized | None]


def bound(serializer: Any, what: str) -> Serialize | None:
    """Return a function that calls a serializer, or None if there is no serializer.

    The function raises SerializationError for any error of the serializer, with that error as its
    cause. `what` is "key" or "value". The function returns a `Serialized` only if it has headers.
    """
    if serializer is None:
        return None
    if isinstance(serializer, Serializer):
        bind_to_part(serializer, what)
        call: Callable[[str, Any, Headers], Any] = serializer.serialize
    else:

        def call(topic: str, value: Any, headers: Headers) -> Any:
            return serializer(value)

    hint = ""
    if hasattr(serializer, "prepare"):
        hint = " Has `await producer.prepare(topic)` been called?"

    def serialize(topic: str, value: Any, headers: Headers) -> bytes | Serialized | None:
        try:
            result = call(topic, value, headers)
        except (KafkaError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # A CancelledError would pass for one of the caller.
            text = f"The {what} serializer failed for a record of topic {topic}: {error!r}.{hint}"
            raise SerializationError(text) from error
        if isinstance(result, bytes):
            return result
        added: Any = ()
        if isinstance(result, Serialized):
            added, result = as_added_headers(result.headers, what), result.data
        if not isinstance(result, bytes) and (result is not None or value is not None):
            kind = type(result).__name__
            raise SerializationError(f"The {what} serializer returned {kind}, not bytes.")
        return Serialized(result, added) if added else result

    return serialize


def as_added_headers(headers: Any, what: str) -> Any:
    """Return a copy of the headers of a serializer. Raises SerializationError if one is invalid."""
    try:
        return as_headers(headers)
    except (TypeError, AttributeError, ValueError) as error:
        text = f"The {what} serializer returned headers that cannot be sent: {error}"
        raise SerializationError(text) from error


def replace_headers(headers: Headers, *parts: Any) -> Headers:
    """Return headers with those of serialized parts, which replace those of the same name."""
    copied = list(as_headers(headers))
    for part in parts:
        if isinstance(part, Serialized):
            names = {name for name, _ in part.headers}
            copied = [pair for pair in copied if pair[0] not in names]
            copied += part.headers
    return copied


def preparations(*serializers: Any) -> list[Callable[[str], Awaitable[object]]]:
    """Return the `prepare` methods of the serializers that have one."""
    found = (getattr(serializer, "prepare", None) for serializer in serializers)
    return [prepare for prepare in found if prepare is not None]


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
