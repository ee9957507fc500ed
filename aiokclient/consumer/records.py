"""`Records`, a list of records."""

from __future__ import annotations

from typing import Any, TypeVar

from aiokclient.log.tables import ROWS, Column, Table
from aiokclient.types import (
    RECORD_FIELDS,
    ConsumerRecord,
    OffsetAndMetadata,
    TopicPartition,
    public_in,
)

K = TypeVar("K")
V = TypeVar("V")

SHOWN = (
    Column("topic"),
    Column("partition", numeric=True),
    Column("offset", numeric=True),
    Column("timestamp", numeric=True),
    Column("key"),
    Column("value"),
)


@public_in("aiokclient")
class Records(list[ConsumerRecord[K, V]]):
    """A list of records, those of each partition in order."""

    __slots__ = ()

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        """Return the same records, one list for each partition."""
        lists: dict[tuple[str, int], list[ConsumerRecord[K, V]]] = {}
        for record in self:
            lists.setdefault((record.topic, record.partition), []).append(record)
        return {TopicPartition(*tp): records for tp, records in lists.items()}

    def offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset after the last record of each partition, as a commit needs it."""
        last = {(record.topic, record.partition): record for record in self}
        return {
            TopicPartition(*tp): OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
            for tp, record in last.items()
        }

    def _repr_html_(self) -> str:
        count = len(self)
        caption = "1 record" if count == 1 else f"{count:,} records"
        rows = [tuple(getattr(r, column.name) for column in SHOWN) for r in self[:ROWS]]
        return Table(SHOWN, rows, caption, total=count).html()

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame with a row for each record; needs pandas.

        Keys and values are as in the records. `timestamp` is a column of times in UTC with
        milliseconds, as `to_pandas()` of an Arrow table has it; NaT for a record without one.
        `timestamp_type` is the name of the type.
        """
        rows = []
        for record in self:
            fields = record._asdict()
            fields["timestamp_type"] = getattr(record.timestamp_type, "name", None)
            rows.append(tuple(fields.values()))
        frame = Table(tuple(map(Column, RECORD_FIELDS)), rows).pandas()
        import pandas

        known = frame["timestamp"].where(frame["timestamp"] >= 0)
        times = pandas.to_datetime(known, unit="ms", utc=True)
        frame["timestamp"] = times.astype("datetime64[ms, UTC]")
        return frame
