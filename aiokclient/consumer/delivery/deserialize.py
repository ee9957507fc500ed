"""Deserialization: from the bytes of a record to the application's keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from aiokclient.errors import ConfigError, RecordError
from aiokclient.types import SKIP, ConsumerRecord, Deserializer, Headers, TopicPartition

RawRecord: TypeAlias = ConsumerRecord[Any, Any]
_Function: TypeAlias = Callable[[str, Any, Headers], Any]


class Deserializers:
    """The deserializers of a consumer, and the handling of their errors.

    If the value deserializer is `memoryview`, `views` is true, and records must be read without
    copying their keys and values. A key deserializer is called with bytes even then.

    `on_error(error)` returns a value to use instead of the key or value that could not be
    deserialized, or SKIP to skip the record. With `nulls`, the deserializers are called with None,
    too.
    """

    def __init__(
        self,
        key: Any = None,
        value: Any = None,
        on_error: Callable[[RecordError], Any] | None = None,
        *,
        nulls: bool = False,
    ) -> None:
        self.views = value is memoryview
        self._key = _function(key, "key_deserializer")
        self._value = _function(value, "value_deserializer")
        if self.views:
            self._key = None if key is memoryview else _copied(self._key)
            self._value = None
        self._on_error = on_error
        self._nulls = nulls

    def __bool__(self) -> bool:
        return self._key is not None or self._value is not None

    def deserialize_record(self, raw: RawRecord) -> RawRecord | None:
        """Return the deserialized record, or None to skip it. Raises RecordError."""
        key = self._deserialize_part("key", self._key, raw.key, raw)
        if key is SKIP:
            return None
        value = self._deserialize_part("value", self._value, raw.value, raw)
        if value is SKIP:
            return None
        made = ConsumerRecord(
            raw.topic,
            raw.partition,
            raw.offset,
            raw.timestamp,
            raw.timestamp_type,
            key,
            value,
            raw.headers,
            raw.leader_epoch,
        )
        made._note_sizes(raw.key, raw.value)
        return made

    def _deserialize_part(
        self, part: str, function: _Function | None, data: bytes | None, raw: RawRecord
    ) -> Any:
        if function is None or (data is None and not self._nulls):
            return data
        try:
            return function(raw.topic, data, raw.headers)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as cause:  # A CancelledError would pass for one of the caller.
            error = _record_error(part, raw)
            error.__cause__ = cause
            if self._on_error is None:
                raise error from cause
            return self._stand_in(error)

    def _stand_in(self, error: RecordError) -> Any:
        """Return the value of `on_error`; if `on_error` fails, raise the error."""
        assert self._on_error is not None
        try:
            return self._on_error(error)
        except (RecordError, SystemExit, KeyboardInterrupt):
            raise
        except BaseException as failure:
            raise error from failure


def _record_error(part: str, raw: RawRecord) -> RecordError:
    return RecordError(
        f"The {part} was refused by its deserializer",
        topic_partition=TopicPartition(raw.topic, raw.partition),
        offset=raw.offset,
        raw_key=_bytes(raw.key),
        raw_value=_bytes(raw.value),
        headers=raw.headers,
    )


def _bytes(data: bytes | memoryview | None) -> bytes | None:
    return bytes(data) if isinstance(data, memoryview) else data


def _copied(function: _Function | None) -> _Function:
    """Return a deserializer that copies a view to bytes before it calls the function."""
    if function is None:
        return lambda topic, data, headers: _bytes(data)
    return lambda topic, data, headers: function(topic, _bytes(data), headers)


def _function(deserializer: Any, option: str) -> _Function | None:
    if deserializer is None:
        return None
    if isinstance(deserializer, Deserializer):
        return deserializer.deserialize
    if not callable(deserializer):
        raise ConfigError(f"{option} must be a function or an object with deserialize().")
    return lambda topic, data, headers: deserializer(data)
