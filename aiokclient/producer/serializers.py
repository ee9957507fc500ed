"""The application's serializers, which convert keys and values to bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokclient.errors import KafkaError, SerializationError
from aiokclient.types import Headers, Serializer

__all__ = ["Serialize", "bound", "preparations"]

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
