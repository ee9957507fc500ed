"""Results as tables, lines, or documents, on standard output.

A terminal gets tables, and a pipe gets lines of values that are separated by tabs, with one line of
names before them. The other formats have the field names of the library's results. Values of bytes
are texts if they are UTF-8, and otherwise `{"base64": "..."}`.

A table that is wider than the terminal is narrowed: the names of columns and times continue on
the next line, long ids are cut, and long texts are folded. If that is not enough, each row becomes
lines of names and values.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokclient.cli.exit_codes import OutputError, exit_code_of_all, one_line
from aiokclient.cli.grammar import NAME, WrongUseError

if TYPE_CHECKING:
    import argparse
    from uuid import UUID

    from rich.console import Console
    from rich.table import Table as DrawnTable

Row = Mapping[str, Any]
FORMATS = ("json", "jsonl", "yaml", "csv")
SIZES = ("size", "size_before", "size_after", "bytes_to_copy", "total_bytes", "usable_bytes")
"""The fields with numbers of bytes, which a table on a terminal has with a unit."""
WIDE_GAP, NARROW_GAP = 3, 2
LONG_ID, SHORT_ID = 20, 7
"""An id from this length on is cut on a narrow terminal, and the least that remains of it."""
LONG_TEXT, MOST_LINES = 24, 3
"""The least width of a column whose longer texts are folded, and the most lines of such a text."""
CUT, FOLDED, WHOLE = "cut", "folded", "whole"
_HOME, _CLEAR_LINE, _CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class Table(NamedTuple):
    """Rows of values. Each column is the name of a field; the first one is the name of the row."""

    columns: Sequence[str]
    rows: Sequence[Row]
    title: str = ""


class Column(NamedTuple):
    """The name of a column, the texts of its cells, and whether these are numbers."""

    name: str
    cells: Sequence[str]
    is_number: bool = False


class _Layout(NamedTuple):
    """The width of each column, and how a text that is longer is shown."""

    widths: Sequence[int]
    kinds: Sequence[str]


class Result(NamedTuple):
    """The result of a command, as data and as tables.

    `failures` are the items that failed, with their errors. `notes` are sentences for the user,
    which are written to standard error.
    """

    data: Any
    tables: Sequence[Table]
    failures: Mapping[str, Exception] = {}
    notes: Sequence[str] = ()


def rows_result(
    columns: Sequence[str],
    rows: Sequence[Row],
    failures: Mapping[str, Exception] | None = None,
    notes: Sequence[str] = (),
) -> Result:
    """Return a result whose data are the rows of its only table.

    The rows may have more fields than the table has columns: the documents have all of them, and
    `--columns` can name them.
    """
    return Result(list(rows), [Table(columns, rows)], failures or {}, notes)


def write_result(result: Result, given: argparse.Namespace) -> int:
    """Write a result in the format that was asked for, and return the exit code.

    Each item that failed is a line on standard error. Raises OutputError.
    """
    write_text(_formatted(result, _format_of(given), given))
    for note in result.notes:
        write_error(note)
    for item, error in result.failures.items():
        write_error(f"{item}: {one_line(error) or repr(error)}")
    # With --dry-run, a command changes nothing, whatever it is for.
    changes = not getattr(given, "dry_run", True)
    return exit_code_of_all(result.failures.values(), changes)


def redraw_result(result: Result, given: argparse.Namespace) -> None:
    """Write the next result of a command that is watched.

    It replaces the one before on a terminal, and follows it in a pipe. Raises OutputError.
    """
    if sys.stdout is None or not sys.stdout.isatty():
        write_result(result, given)
        return
    from datetime import UTC, datetime
    from shutil import get_terminal_size

    now = datetime.now(UTC).isoformat(" ", "seconds").replace("+00:00", " UTC")
    lines = [f"Every {given.watch:g} s, {now}", ""]
    lines += _formatted(result, _format_of(given), given).splitlines()
    lines += result.notes
    lines += [
        f"{item}: {one_line(error) or repr(error)}" for item, error in result.failures.items()
    ]
    height = get_terminal_size().lines - 1
    if len(lines) > height:
        lines[height - 1 :] = [f"... and {len(lines) - height + 1} more lines"]
    # What is left of each old line, and of the old screen, is cleared after the new text is
    # written: a screen that is cleared first flickers.
    text = "".join(f"{line}{_CLEAR_LINE}\n" for line in lines)
    write_text(f"{_HOME}{text}{_CLEAR_BELOW}")


def _format_of(given: argparse.Namespace) -> str:
    """Return the format that was asked for, or an empty text. Raises WrongUseError for several."""
    formats = [each for each in FORMATS if getattr(given, each, False)]
    if len(formats) > 1:
        raise WrongUseError(f"Give only one of {', '.join(f'--{each}' for each in FORMATS)}.")
    return formats[0] if formats else ""


def _formatted(result: Result, name: str, given: argparse.Namespace) -> str:
    chosen = [each for each in (given.columns or "").split(",") if each]
    tables = [_with_columns(each, chosen) for each in result.tables] if chosen else result.tables
    if given.quiet:
        names = dict.fromkeys(
            shown(row.get(table.columns[0])) for table in tables for row in table.rows
        )
        return "".join(f"{each}\n" for each in names)
    data = result.data
    if chosen and isinstance(data, list):
        data = [{name: row.get(name) for name in chosen} for row in data]
    data = as_json(data)
    if name == "json":
        import json

        return f"{json.dumps(data, indent=2)}\n"
    if name == "jsonl":
        import json

        items = data if isinstance(data, list) else [data]
        return "".join(f"{json.dumps(each)}\n" for each in items)
    if name == "yaml":
        return "".join(f"{line}\n" for line in yaml_lines(data))
    if name == "csv":
        return _csv(tables)
    if sys.stdout is not None and sys.stdout.isatty():
        if result.failures and not any(each.rows for each in tables):
            return ""  # The errors say it all.
        return _drawn(tables)
    return "\n".join(_tab_separated(each) for each in tables)


def _with_columns(table: Table, chosen: Sequence[str]) -> Table:
    known = {name: None for row in table.rows for name in row} | dict.fromkeys(table.columns)
    if unknown := [name for name in chosen if name not in known]:
        raise WrongUseError(
            f"There is no column {', '.join(unknown)}. There are {', '.join(known)}."
        )
    return table._replace(columns=chosen)


def as_json(value: Any) -> Any:
    """Return a value of the library in the form that JSON has for it.

    Named tuples and dataclasses become objects with their fields, enumerations their names in
    lower case, times milliseconds since the epoch, and ids Kafka's notation.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return as_text_or_base64(bytes(value))
    if value is None or isinstance(value, bool | str) or type(value) in (int, float):
        return value
    if hasattr(value, "timestamp"):  # datetime is imported where it is needed only.
        return round(value.timestamp() * 1000)
    if isinstance(value, Mapping):
        return {_as_key(key): as_json(each) for key, each in value.items()}
    # Named tuples and dataclasses have it, too. Their other lists of fields take more to make.
    fields = getattr(value, "__match_args__", None)
    if fields is not None and not isinstance(value, type):
        return {name: as_json(getattr(value, name)) for name in fields}
    if isinstance(value, Sequence | set | frozenset):
        return [as_json(each) for each in value]
    if hasattr(value, "hex") and hasattr(value, "bytes"):
        return as_kafka_id(value)
    name = getattr(value, "name", None)
    return name.lower() if isinstance(name, str) else str(value)


def as_kafka_id(value: UUID) -> str:
    """Return a UUID in Kafka's notation, 22 characters."""
    # Not by `base64`, which would take a twentieth of the start of a command.
    from binascii import b2a_base64

    text = b2a_base64(value.bytes, newline=False).decode().rstrip("=")
    return text.replace("+", "-").replace("/", "_")


def _as_key(key: Any) -> str:
    if isinstance(key, tuple) and hasattr(key, "topic"):
        return f"{key[0]}-{key[1]}"
    return key if isinstance(key, str) else shown(key)


def as_text_or_base64(value: bytes) -> Any:
    """Return bytes as a text if they are UTF-8, and as an object with their base64 otherwise."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return {"base64": b64encode(value).decode()}


def iso_time(milliseconds: int | None) -> str | None:
    """Return a time in milliseconds since the epoch as ISO 8601 in UTC, or None if there is none.

    Kafka has -1 for no time. A time that has no date, because it is too far away, is None, too.
    """
    from datetime import UTC, datetime

    if milliseconds is None or milliseconds < 0:
        return None
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(value: Any) -> str:
    """Return a value as the text of one cell, without line breaks and tabs."""
    value = as_json(value)
    if value is None:
        text = "-"
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, list):
        text = ",".join(map(shown, value)) if value else "-"
    elif isinstance(value, dict):
        text = ",".join(f"{key}={shown(each)}" for key, each in value.items()) or "-"
    else:
        text = str(value)
    if text.isprintable() or _ESCAPED.keys().isdisjoint(map(ord, text)):
        return text
    return text.replace("\\", "\\\\").translate(_ESCAPED)


_ESCAPED = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {
    9: "\\t",
    10: "\\n",
    13: "\\r",
}


def _tab_separated(table: Table) -> str:
    lines = ["\t".join(table.columns)]
    lines += ["\t".join(shown(row.get(name)) for name in table.columns) for row in table.rows]
    return "".join(f"{line}\n" for line in lines)


def _csv(tables: Sequence[Table]) -> str:
    import csv
    import io

    text = io.StringIO()
    for number, table in enumerate(tables):
        text.write("\n" if number else "")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.columns)
        for row in table.rows:
            values = [as_json(row.get(name)) for name in table.columns]
            writer.writerow(["" if each is None else shown(each) for each in values])
    return text.getvalue()


def _drawn(tables: Sequence[Table]) -> str:
    """Return tables for a terminal, or lines with tabs if the package rich is not installed."""
    try:
        return draw_tables([(each.title, _columns_of(each)) for each in tables])
    except ModuleNotFoundError:
        return "\n".join(_tab_separated(each) for each in tables)


def _columns_of(table: Table) -> list[Column]:
    return [
        Column(
            name.replace("_", " "),
            [encodable(_seen(name, row.get(name))) for row in table.rows],
            bool(table.rows) and all(_is_number(row.get(name)) for row in table.rows),
        )
        for name in table.columns
    ]


def draw_tables(tables: Sequence[tuple[str, Sequence[Column]]]) -> str:
    """Return titled tables for the terminal at standard output.

    Raises ModuleNotFoundError if the package rich is not installed.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    parts = []
    for title, columns in tables:
        with console.capture() as captured:
            if title:
                console.print(Text(title, style="bold"))
            _print(console, columns)
        lines = [line.rstrip() for line in captured.get().splitlines()]
        parts.append("".join(f"{line}\n" for line in lines))
    return "\n".join(parts)


def _print(console: Console, columns: Sequence[Column]) -> None:
    widths = [max(map(_width, (each.name, *each.cells))) for each in columns]
    if sum(widths) + WIDE_GAP * (len(widths) - 1) <= console.width:
        console.print(_table_of(columns, _Layout(widths, [WHOLE] * len(widths)), WIDE_GAP))
        return
    columns = [_with_spaces_in_times(each) for each in columns]
    layout = _narrowed(columns, console.width - NARROW_GAP * (len(columns) - 1))
    if layout is not None:
        console.print(_table_of(columns, layout, NARROW_GAP))
    else:
        _print_rows(console, columns)


def _table_of(columns: Sequence[Column], layout: _Layout, gap: int) -> DrawnTable:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # The line of the box is one of the characters between two columns.
    padding = (0, 1, 0, gap - 2)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=padding)
    for column, width, kind in zip(columns, *layout, strict=True):
        table.add_column(
            Text(column.name),
            justify="right" if column.is_number else "left",
            width=width,
            no_wrap=kind == CUT,
            overflow="ellipsis" if kind == CUT else "fold",
        )
    for cells in zip(*(each.cells for each in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _narrowed(columns: Sequence[Column], available: int) -> _Layout | None:
    """Return widths whose sum is what is available, or None if no table would be readable."""
    kinds = [_kind_of(number, each) for number, each in enumerate(columns)]
    widths = [_least_width(*each) for each in zip(columns, kinds, strict=True)]
    rest = available - sum(widths)
    if rest < 0:
        return None
    # First the values get what is left, and then the names of the columns.
    for wanted in ([_content_width(each) for each in columns], [_width(c.name) for c in columns]):
        for number, width in enumerate(wanted):
            more = max(0, min(rest, width - widths[number]))
            widths[number] += more
            rest -= more
    for column, width, kind in zip(columns, widths, kinds, strict=True):
        if kind == FOLDED and _content_width(column) > width * MOST_LINES:
            return None
    return _Layout(widths, kinds)


def _kind_of(number: int, column: Column) -> str:
    """Return how a column becomes narrower. The first one has the names of the rows."""
    if number and column.name.endswith(" id") and _content_width(column) >= LONG_ID:
        return CUT
    return WHOLE if column.is_number else FOLDED


def _least_width(column: Column, kind: str) -> int:
    word = max(map(_width, column.name.split()), default=0)
    content = _content_width(column)
    if kind == CUT:
        return max(word, SHORT_ID)
    if kind == FOLDED:
        words = [_width(each) for cell in column.cells for each in cell.split()]
        content = min(content, max(LONG_TEXT if content > LONG_TEXT else 0, max(words, default=0)))
    return max(word, content)


def _content_width(column: Column) -> int:
    return max(map(_width, column.cells), default=0)


def _with_spaces_in_times(column: Column) -> Column:
    """Return a column whose times can continue on the next line after their date."""
    if not column.name.endswith(" iso"):
        return column
    return column._replace(cells=[each.replace("T", " ") for each in column.cells])


def _print_rows(console: Console, columns: Sequence[Column]) -> None:
    """Print the values of each row below each other, beside the names of their columns."""
    from rich.table import Table
    from rich.text import Text

    for number in range(len(columns[0].cells)):
        if number:
            console.print()
        grid = Table.grid(padding=(0, NARROW_GAP, 0, 0))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for column in columns:
            grid.add_row(Text(column.name), Text(column.cells[number]))
        console.print(grid)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _seen(name: str, value: Any) -> str:
    """Return the text of a cell for a reader, who can take in 1.5 GB at a glance."""
    if name not in SIZES or not isinstance(value, int):
        return shown(value)
    from aiokclient.cli.values import named_bytes

    return named_bytes(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


_PLAIN = r"[A-Za-z_./][A-Za-z0-9_./@+-]*"
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "."}


def yaml_lines(data: Any, indent: str = "") -> Iterator[str]:
    """Yield the lines of a YAML document."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _yaml_item(f"{indent}{_yaml_scalar(key)}:", value, f"{indent}  ")
    elif isinstance(data, list) and data:
        for value in data:
            inner = list(yaml_lines(value, f"{indent}  "))
            yield f"{indent}- {inner[0].lstrip()}"
            yield from inner[1:]
    else:
        yield f"{indent}{_yaml_scalar(data)}"


def _yaml_item(start: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield start
        yield from yaml_lines(value, indent)
    else:
        yield f"{start} {_yaml_scalar(value)}"


def _yaml_scalar(value: Any) -> str:
    import json
    import re

    is_text = isinstance(value, str)
    is_plain = is_text and re.fullmatch(_PLAIN, value) and value.lower() not in _WORDS
    # JSON is YAML, so whatever is not plain is written as JSON.
    return str(value) if is_plain else json.dumps(value)


def write_text(text: str) -> None:
    """Write a text to standard output. Raises OutputError if that is not possible."""
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        sys.stdout.write(encodable(text))
        # If the output cannot be written, the error occurs here, not at the end of the process.
        sys.stdout.flush()
    except OSError as error:
        is_pipe = isinstance(error, BrokenPipeError)
        raise OutputError(error.strerror or str(error), is_pipe) from error


def write_bytes(content: bytes) -> None:
    """Write bytes to standard output as they are. Raises OutputError if that is not possible."""
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    try:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except OSError as error:
        is_pipe = isinstance(error, BrokenPipeError)
        raise OutputError(error.strerror or str(error), is_pipe) from error


def write_error(text: str) -> None:
    """Write a line to standard error, if it is open."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{NAME}: {' '.join(text.split())}\n")
            sys.stderr.flush()


def encodable(text: str) -> str:
    """Return the text with escapes for characters outside the encoding of standard output."""
    encoding = (sys.stdout.encoding if sys.stdout is not None else None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def discard_output() -> None:
    """Let the rest of standard output vanish, so that the interpreter's end does not fail."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
            os.close(null)
