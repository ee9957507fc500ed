"""The trace context in the headers of the rows of an Arrow record batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokclient.telemetry.otel.headers import Carried
from aiokclient.types import Headers

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ArrowHeaders"]

COLUMN = "headers"


class ArrowHeaders:
    """The headers of the rows that `send_arrow` sends.

    If `send_arrow` would refuse the batch, there are no headers, and the batch is not changed.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        import pyarrow

        self._pyarrow = pyarrow
        self._batch = batch
        self.topics: set[str] = set()
        """The names in the column `topic`."""
        self.rows: list[Headers] = []
        """The headers of each row. It is an empty list without a usable column of headers."""
        self._usable = isinstance(batch, pyarrow.RecordBatch)
        if self._usable:
            self._read(batch.schema.names)

    def _read(self, names: list[str]) -> None:
        """Read the columns. The batch is not usable if `send_arrow` would refuse it."""
        if len(set(names)) < len(names):
            self._usable = False
            return
        if "topic" in names:
            self.topics = set(map(str, self._batch.column("topic").unique().to_pylist()))
        if COLUMN not in names:
            return
        try:
            found = self._batch.column(COLUMN).to_pylist()
            self.rows = [[_pair(each) for each in row or ()] for row in found]
        except (KeyError, TypeError, ValueError):
            self._usable, self.rows = False, []

    def with_context(self, carried: Carried) -> pa.RecordBatch:
        """Return the batch with the context added to the headers of its rows."""
        if not self._usable:
            return self._batch
        rows = self.rows or [()] * self._batch.num_rows
        text, content = self._pyarrow.string(), self._pyarrow.binary()
        kind = self._pyarrow.list_(self._pyarrow.struct([("key", text), ("value", content)]))
        added = [[_item(*pair) for pair in carried.added_to(headers)] for headers in rows]
        columns = dict(zip(self._batch.schema.names, self._batch.columns, strict=True))
        columns[COLUMN] = self._pyarrow.array(added, kind)
        return self._pyarrow.RecordBatch.from_pydict(columns)


def _pair(item: Any) -> tuple[str, bytes | None]:
    name, content = item["key"], item["value"]
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is not the name of a header.")
    return name, content.encode() if isinstance(content, str) else content


def _item(name: str, content: bytes | None) -> dict[str, Any]:
    return {"key": name, "value": content}
