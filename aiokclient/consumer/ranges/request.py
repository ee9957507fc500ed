"""The arguments of `Client.read_range`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self
from uuid import UUID

from aiokclient.consumer.arguments import as_partition, require_count
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.record.arrow import COLUMNS, arrow_schema
from aiokclient.types import TopicPartition, is_offset, seconds

LEVELS: Final = ("read_uncommitted", "read_committed")
NO_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    """A valid range, and how to read it. `timeout_s` limits each wait for records."""

    tp: TopicPartition
    start: int
    end: int
    columns: tuple[str, ...]
    read_committed: bool
    batch_rows: int
    fetch_max_bytes: int
    timeout_s: float
    topic_id: UUID | None

    @classmethod
    def of(
        cls,
        tp: Any,
        start: Any,
        end: Any,
        *,
        columns: Any,
        isolation_level: Any,
        batch_rows: Any,
        fetch_max_bytes: Any,
        timeout: Any,
        topic_id: Any,
    ) -> Self:
        """Check the arguments of `Client.read_range`.

        Raises ArgumentTypeError, InvalidTopicError, TypeError for a wrong timeout, and ImportError
        if pyarrow is not installed.
        """
        partition = as_partition(tp)
        for name, offset in (("start", start), ("end", end)):
            if not is_offset(offset):
                raise ArgumentTypeError(
                    f"{name} must be an offset, an integer from 0, not {offset!r}."
                )
        if start > end:
            raise ArgumentTypeError(f"The range starts at {start}, after its end {end}.")
        if isolation_level not in LEVELS:
            raise ArgumentTypeError(
                f"isolation_level must be one of {', '.join(LEVELS)}, not {isolation_level!r}."
            )
        require_count("batch_rows", batch_rows)
        require_count("fetch_max_bytes", fetch_max_bytes)
        if topic_id is not None and (not isinstance(topic_id, UUID) or topic_id == NO_ID):
            raise ArgumentTypeError(f"topic_id must be a uuid.UUID, not {topic_id!r}.")
        names = _columns(columns)
        arrow_schema(names)  # Raises ImportError without pyarrow, before anything is fetched.
        return cls(
            tp=partition,
            start=start,
            end=end,
            columns=names,
            read_committed=isolation_level == "read_committed",
            batch_rows=batch_rows,
            fetch_max_bytes=fetch_max_bytes,
            timeout_s=seconds(timeout),
            topic_id=topic_id,
        )


def _columns(given: Any) -> tuple[str, ...]:
    if given is None:
        return COLUMNS
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(COLUMNS):
        raise ArgumentTypeError(
            f"columns={given!r} is not a collection of different columns. The columns are "
            f"{', '.join(COLUMNS)}."
        )
    return names
