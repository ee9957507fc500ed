"""Tables for notebooks, as HTML and as a pandas.DataFrame. pandas is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokclient.types.named_tuple import NamedTuple

ROWS = 60
"""Number of rows that are shown as HTML."""
CELL = 120
"""Number of characters of a cell that are shown as HTML."""


class Column(NamedTuple):
    """The name of a column, and whether its cells are right-aligned as numbers."""

    name: str
    numeric: bool = False


class Table(NamedTuple):
    """A table with columns, rows, and a caption.

    If `rows` does not have all rows of the table, `total` is the number of all of them.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    total: int = 0

    def html(self) -> str:
        """Return the table as escaped HTML. It has at most `ROWS` rows, and long cells are cut."""
        from html import escape  # This import loads a large table of HTML entities.

        parts = ["<table>"]
        if self.caption:
            parts.append(f'<caption style="text-align:left">{escape(self.caption)}</caption>')
        heads = "".join(f"<th>{escape(column.name)}</th>" for column in self.columns)
        parts.append(f"<thead><tr>{heads}</tr></thead><tbody>")
        parts += [self._html_row(row) for row in self.rows[:ROWS]]
        parts.append("</tbody></table>")
        total = max(self.total, len(self.rows))
        if total > ROWS:
            parts.append(f"<p>The first {ROWS} of {total:,} rows are shown.</p>")
        return "".join(parts)

    def _html_row(self, row: Sequence[Any]) -> str:
        from html import escape

        cells = []
        for column, value in zip(self.columns, row, strict=True):
            align = "right" if column.numeric else "left"
            cells.append(f'<td style="text-align:{align}">{escape(shown(value))}</td>')
        return f"<tr>{''.join(cells)}</tr>"

    def pandas(self) -> Any:
        """Return a pandas.DataFrame. Raises ImportError if pandas is not installed."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError(
                "to_pandas() needs the package pandas, which is not installed. Run pip install "
                "pandas."
            ) from error
        return pandas.DataFrame(list(self.rows), columns=[column.name for column in self.columns])


def shown(value: Any) -> str:
    """Format a value for display: UTF-8 bytes as text, and None as an empty string."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray | memoryview):
        head = bytes(value[: CELL + 1])
        try:
            text = head.decode()
        except UnicodeDecodeError:
            text = repr(head)
        more = len(value) > len(head)
    else:
        text, more = value if isinstance(value, str) else str(value), False
    return f"{text[:CELL]}…" if more or len(text) > CELL else text
