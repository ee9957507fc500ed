"""Deserialization: from the bytes of a record to the application's keys and values."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from aiokclient.errors import ConfigError, RecordError
from aiokclient.scopes import is_cancelled
from aiokclient.types import (
    SKIP,
    ConsumerRecord,
    Deserializer,
    Headers,
    TopicPartition,
    bind_to_part,
)
from aiokclient.types.named_tuple import NamedTuple

RawRecord: TypeAlias = ConsumerRecord[Any, Any]
_Function: TypeAlias = Callable[[str, Any, Headers], Any]


class Unprepared(NamedTuple):
    """A part of a record, "key" or "value", that cannot be deserialized yet, or not at all."""

    part: str
    error: BaseException | None = None
    """Why `prepare` or `is_prepared` failed; None if `prepare` was not called yet."""


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
        self._to_prepare = [
            (part, each.is_prepared, each.prepare)
            for part, each in (("key", key), ("value", value))
            if _is_preparable(each, f"{part}_deserializer")
        ]
        self.can_wait = bool(self._to_prepare)
        """Whether records may have to be prepared before they are deserialized."""

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
        return self._make_record(raw, key, value)

    def deserialize_bytes(self, raw: RawRecord) -> RawRecord | None:
        """Do what `deserialize_record` does, for a record that was read with copies of its bytes.

        If views are wanted, they are views of these copies.
        """
        if not (self or self.views):
            return raw
        made = self.deserialize_record(raw)
        if self.views and made is not None and isinstance(made.value, bytes):
            made = self._make_record(raw, made.key, memoryview(made.value))
        return made

    def refuse_record(self, raw: RawRecord, unprepared: Unprepared) -> RawRecord | None:
        """Return the record with what `on_error` returns in place of a part, or None to skip it.

        Raises the RecordError of that part if there is no `on_error`.
        """
        parts: dict[str, Any] = {}
        for part, function, data in (
            ("key", self._key, raw.key),
            ("value", self._value, raw.value),
        ):
            if part == unprepared.part:
                parts[part] = self._refuse_part(part, raw, unprepared.error)
            else:
                parts[part] = self._deserialize_part(part, function, data, raw)
            if parts[part] is SKIP:
                return None
        return self._make_record(raw, parts["key"], parts["value"])

    def _make_record(self, raw: RawRecord, key: Any, value: Any) -> RawRecord:
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
            return self._refuse_part(part, raw, cause)

    def _refuse_part(self, part: str, raw: RawRecord, cause: BaseException | None) -> Any:
        """Return the value of `on_error` for a part. Without `on_error`, raise its RecordError."""
        error = _record_error(part, raw, cause)
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

    # -- preparation

    def find_unprepared(self, raw: RawRecord) -> Unprepared | None:
        """Return the first part of a record that is not prepared, or None."""
        # This runs for each record of a consumer with a schema registry.
        for part, is_prepared, _ in self._to_prepare:
            data = raw.key if part == "key" else raw.value
            if data is None and not self._nulls:
                continue
            if type(data) is memoryview:
                data = bytes(data)
            try:
                if not is_prepared(data, raw.headers):
                    return Unprepared(part)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # A CancelledError would pass for one of the caller.
                return Unprepared(part, error)
        return None

    async def prepare_records(
        self, records: Sequence[RawRecord], timeout: float
    ) -> Unprepared | None:
        """Prepare what is not prepared of records of one topic. Return the first failure.

        `timeout` is in seconds, for each part. After it, the error is a TimeoutError.
        """
        for part, is_prepared, prepare in self._to_prepare:
            items = self._list_items(part, is_prepared, records)
            if not items:
                continue
            try:
                async with asyncio.timeout(None if timeout == math.inf else timeout):
                    await prepare(records[0].topic, items)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_cancelled():
                    raise
                return Unprepared(part, error)
        return None

    def _list_items(
        self, part: str, is_prepared: Callable[..., Any], records: Sequence[RawRecord]
    ) -> list[tuple[bytes | None, Headers]]:
        """Return the data and headers of the records whose part is not prepared."""
        items: list[tuple[bytes | None, Headers]] = []
        for record in records:
            data = record.key if part == "key" else record.value
            if data is None and not self._nulls:
                continue
            given = _bytes(data)
            try:
                if not is_prepared(given, record.headers):
                    items.append((given, record.headers))
            except Exception:
                continue  # The error is that of its record, when the turn of that record comes.
        return items


def _record_error(part: str, raw: RawRecord, cause: BaseException | None) -> RecordError:
    # Only the class of the exception: its text may have the data.
    by = "" if cause is None else f", with {type(cause).__name__}"
    return RecordError(
        f"The {part} was refused by its deserializer{by}",
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


def _is_preparable(deserializer: Any, option: str) -> bool:
    """Return whether a deserializer prepares records: whether it has `is_prepared`.

    One that has only `prepare` may be a serializer as well, whose `prepare` takes a topic alone.
    """
    if not callable(getattr(deserializer, "is_prepared", None)):
        return False
    if not callable(getattr(deserializer, "prepare", None)):
        raise ConfigError(f"{option} has is_prepared(), but no coroutine function prepare().")
    return True


def _function(deserializer: Any, option: str) -> _Function | None:
    if deserializer is None:
        return None
    if isinstance(deserializer, Deserializer):
        bind_to_part(deserializer, option.partition("_")[0])
        return deserializer.deserialize
    if not callable(deserializer):
        raise ConfigError(f"{option} must be a function or an object with deserialize().")
    return lambda topic, data, headers: deserializer(data)
