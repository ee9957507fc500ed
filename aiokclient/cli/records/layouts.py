r"""Records as bytes: lines of a format with `%` tokens, JSON, YAML, and CSV.

A format has the tokens of kcat with the same meaning, and some of kcl:

    %s %v   value, %S %V its length, %R its length as four bytes; -1 for null
    %k %K   key and its length
    %t %p %o %e %T    topic, partition, offset, leader epoch, timestamp in milliseconds
    %d      timestamp in ISO 8601, or %d{...} in the form of strftime, in UTC
    %h      headers as name=value, separated by commas; %h{...} a format for each of them, in which
            %k is the name and %v the value; %H their number
    %i      the number of the record, from 1
    %% %{ %}    these characters

`%s{hex}`, `%k{base64}`, and so on name a form. `\n`, `\t`, `\r`, `\xHH`, and `\NNN` are characters.
"""

from __future__ import annotations

import itertools
import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokclient.cli.output import as_text_or_base64, iso_time, yaml_lines
from aiokclient.cli.records.formats import (
    ContentError,
    Form,
    NamedForm,
    compact_json,
    unescape,
)

if TYPE_CHECKING:
    from aiokclient import ConsumerRecord

    Record = ConsumerRecord[bytes, bytes]
    Write = Callable[[Record], bytes]

FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_iso",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
)
"""The fields of a record in JSON, in order."""
COLUMNS = ("topic", "partition", "offset", "timestamp_iso", "key", "value")
"""The columns of CSV by default."""
TIMESTAMP_TYPES = ("create_time", "log_append_time")
CONTENT = {"s": "value", "v": "value", "k": "key"}
SIZES = {"S": "value", "V": "value", "K": "key"}
UNNAMED = "%h{...} has a format with %k, %K, %v, and %V, such as %h{%k=%v,}"


class Token(NamedTuple):
    """A token of a format: its letter, and the text in braces. Other text has no letter."""

    letter: str
    argument: str = ""
    text: bytes = b""


class RecordFormat:
    r"""A format of records, as in `-f '%k %o %s\\n'`."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_parse(text, "sSvVkKRThHtpoedi", "svkhd"))
        for token in self.tokens:
            if token.letter == "h" and token.argument:
                list(_parse(token.argument, "kKvV", "kv", UNNAMED))
            elif token.letter in CONTENT and token.argument:
                NamedForm(token.argument)


def _parse(text: str, letters: str, with_argument: str, advice: str = "") -> list[Token]:
    """Return the tokens of a format. Raises ArgumentTypeError."""
    tokens: list[Token] = []
    at = 0
    while (found := text.find("%", at)) >= 0:
        if found > at:
            tokens.append(Token("", text=unescape(text[at:found])))
        letter = text[found + 1 : found + 2]
        at = found + 2
        if letter in ("%", "{", "}"):
            tokens.append(Token("", text=letter.encode()))
            continue
        if letter == "D":
            raise ArgumentTypeError(
                "%D, the delivery count, needs a share group, which comes later"
            )
        if not letter or letter not in letters:
            known = advice or f"there are {' '.join(f'%{each}' for each in letters)} %%"
            raise ArgumentTypeError(f"%{letter} is no token of a format; {known}")
        argument = ""
        if letter in with_argument and text[at : at + 1] == "{":
            end = _find_brace(text, at)
            argument, at = text[at + 1 : end], end + 1
        tokens.append(Token(letter, argument))
    if text[at:]:
        tokens.append(Token("", text=unescape(text[at:])))
    return tokens


def _find_brace(text: str, start: int) -> int:
    """Return the index of the brace that ends the one at `start`. Raises ArgumentTypeError."""
    depth = 0
    at = start
    while at < len(text):
        if text[at] == "%" and text[at + 1 : at + 2] in ("{", "}", "%"):
            at += 1
        elif text[at] in "{}":
            depth += 1 if text[at] == "{" else -1
            if not depth:
                return at
        at += 1
    raise ArgumentTypeError(f"{text[start:]!r} has no closing brace")


class Contents:
    """The keys and values of records in the forms that were asked for.

    `decode` returns key and value of a record of an internal topic as items of JSON, or None for
    any other record. None stands for no form of its own: the bytes, or what `decode` returns.
    """

    def __init__(
        self,
        key: Form | None = None,
        value: Form | None = None,
        decode: Callable[[Record], tuple[Any, Any] | None] | None = None,
    ) -> None:
        self.forms: dict[str, Form] = {"key": key or NamedForm("text")}
        self.forms["value"] = value or NamedForm("text")
        self._decode = decode
        self.are_decoded = decode is not None
        self.are_plain = decode is None and all(
            getattr(form, "is_plain", False) for form in self.forms.values()
        )

    def find_item(self, record: Record, part: str, form: Form | None = None) -> Any:
        """Return the key or value for a JSON document. Raises ContentError."""
        content: bytes | None = getattr(record, part)
        decoded = self._decode(record) if self._decode is not None and form is None else None
        if decoded is not None:
            return decoded[part == "value"]
        return None if content is None else (form or self.forms[part]).to_json(content)

    def find_bytes(self, record: Record, part: str, form: Form | None = None) -> bytes | None:
        """Return the key or value for a line of text. Raises ContentError."""
        content: bytes | None = getattr(record, part)
        if content is None:
            return None
        if self._decode is not None and form is None and self._decode(record) is not None:
            return compact_json(self.find_item(record, part))
        return (form or self.forms[part]).to_bytes(content)


class Formatted(NamedTuple):
    """Records as bytes, and their number. `error` says why the next one cannot be written."""

    content: bytes
    number: int
    error: str = ""


class Layout:
    """The base of the layouts: how many records are written."""

    def format_start(self) -> bytes:
        """Return what is before the first record."""
        return b""

    def format_end(self) -> bytes:
        """Return what is after the last record."""
        return b""

    def format_records(self, records: Sequence[Record]) -> Formatted:
        """Return records as bytes, up to the first that does not have the form asked for."""
        parts: list[bytes] = []
        for record in records:
            try:
                parts.append(self.write_record(record))
            except ContentError as error:
                text = (
                    f"{record.topic}-{record.partition}: The key or value of the record at offset "
                    f"{record.offset} {error}. Choose another format, or skip such records with "
                    "--skip-errors."
                )
                return Formatted(b"".join(parts), len(parts), text)
        return Formatted(b"".join(parts), len(parts))

    def write_record(self, record: Record) -> bytes:
        """Return one record as bytes. Raises ContentError."""
        raise NotImplementedError


class ValueLayout(Layout):
    """Values alone, with a delimiter after each: the layout by default."""

    def __init__(self, delimiter: bytes, null: bytes) -> None:
        self._delimiter = delimiter
        self._null = null

    def format_records(self, records: Sequence[Record]) -> Formatted:
        """Return the values with their delimiters."""
        values: list[Any] = [record.value for record in records]
        values.append(b"")  # The join ends with the delimiter of the last record.
        try:
            content = self._delimiter.join(values)
        except TypeError:  # Some values are null.
            null = self._null
            content = self._delimiter.join([null if each is None else each for each in values])
        return Formatted(content, len(records))

    def write_record(self, record: Record) -> bytes:
        """Return the value with its delimiter."""
        return (self._null if record.value is None else record.value) + self._delimiter


class FormatLayout(Layout):
    """A line for each record in a format."""

    def __init__(self, tokens: Sequence[Token], contents: Contents, null: bytes) -> None:
        self._contents = contents
        self._null = null
        self._numbers = itertools.count(1)
        self._parts: list[Write] = [self._compile(token) for token in tokens]

    def write_record(self, record: Record) -> bytes:
        """Return the record in the format."""
        return b"".join([write(record) for write in self._parts])

    def _compile(self, token: Token) -> Write:
        letter, argument, text = token
        if not letter:
            return lambda _: text
        if letter in CONTENT:
            return self._compile_content(CONTENT[letter], argument)
        if letter in SIZES:
            part = SIZES[letter]
            return lambda record: b"%d" % _size(getattr(record, part))
        if letter == "d" and argument:
            return lambda record: _strftime(record.timestamp, argument).encode()
        if letter == "h":
            return self._compile_headers(argument)
        fields: dict[str, Write] = {
            "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
            "T": lambda record: b"%d" % record.timestamp,
            "H": lambda record: b"%d" % len(record.headers),
            "t": lambda record: record.topic.encode(),
            "p": lambda record: b"%d" % record.partition,
            "o": lambda record: b"%d" % record.offset,
            "e": lambda record: (
                b"%d" % (-1 if record.leader_epoch is None else record.leader_epoch)
            ),
            "d": lambda record: (iso_time(record.timestamp) or "").encode(),
            "i": lambda _: b"%d" % next(self._numbers),
        }
        return fields[letter]

    def _compile_content(self, part: str, name: str) -> Write:
        form = NamedForm(name) if name else None
        null, find = self._null, self._contents.find_bytes

        def write(record: Record) -> bytes:
            content = find(record, part, form)
            return null if content is None else content

        return write

    def _compile_headers(self, argument: str) -> Write:
        if not argument:
            return lambda record: b",".join(
                b"%s=%s" % (name.encode(), b"NULL" if value is None else value)
                for name, value in record.headers
            )
        tokens = _parse(argument, "kKvV", "kv", UNNAMED)
        null = self._null

        def write_header(name: bytes, value: bytes | None) -> bytes:
            written = []
            for letter, form, text in tokens:
                content = name if letter in ("k", "K") else value
                if not letter:
                    written.append(text)
                elif letter in ("K", "V"):
                    written.append(b"%d" % _size(content))
                elif content is None:
                    written.append(null)
                else:
                    written.append(NamedForm(form or "text").to_bytes(content))
            return b"".join(written)

        return lambda record: b"".join(
            write_header(name.encode(), value) for name, value in record.headers
        )


def _size(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _strftime(milliseconds: int, form: str) -> str:
    if iso_time(milliseconds) is None:
        return ""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(form)


class RowLayout(Layout):
    """The base of the layouts that write a record as an object with fields."""

    def __init__(self, contents: Contents, columns: Sequence[str]) -> None:
        self._contents = contents
        self._columns = columns

    def make_row(self, record: Record) -> dict[str, Any]:
        """Return the fields of a record. Raises ContentError."""
        row = {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_iso": iso_time(record.timestamp),
            "timestamp_type": TIMESTAMP_TYPES[record.timestamp_type],
            "key": self._contents.find_item(record, "key"),
            "value": self._contents.find_item(record, "value"),
            "headers": [
                [name, None if value is None else as_text_or_base64(value)]
                for name, value in record.headers
            ],
            "leader_epoch": record.leader_epoch,
        }
        return {name: row[name] for name in self._columns} if self._columns else row


class JsonLinesLayout(RowLayout):
    """A line of JSON for each record."""

    _encode = staticmethod(json.JSONEncoder(ensure_ascii=False).encode)

    def write_record(self, record: Record) -> bytes:
        """Return the record as a line of JSON."""
        return self._encode(self.make_row(record)).encode() + b"\n"


class JsonLayout(RowLayout):
    """One JSON document with a list of all records."""

    _is_first = True

    def format_start(self) -> bytes:
        """Return the start of the list."""
        return b"["

    def format_end(self) -> bytes:
        """Return the end of the list."""
        return b"]\n" if self._is_first else b"\n]\n"

    def write_record(self, record: Record) -> bytes:
        """Return the record as an item of the list."""
        text = json.dumps(self.make_row(record), ensure_ascii=False, indent=2)
        before = "\n" if self._is_first else ",\n"
        self._is_first = False
        return (before + "\n".join(f"  {line}" for line in text.split("\n"))).encode()


class YamlLayout(RowLayout):
    """One YAML document with a list of all records."""

    _is_empty = True

    def format_end(self) -> bytes:
        """Return an empty list if there was no record."""
        return b"[]\n" if self._is_empty else b""

    def write_record(self, record: Record) -> bytes:
        """Return the record as an item of the list."""
        self._is_empty = False
        return "".join(f"{line}\n" for line in yaml_lines([self.make_row(record)])).encode()


class CsvLayout(RowLayout):
    """A row of CSV for each record, after a row with the names."""

    def __init__(self, contents: Contents, columns: Sequence[str]) -> None:
        super().__init__(contents, columns or COLUMNS)

    def format_start(self) -> bytes:
        """Return the row with the names."""
        return csv_row(self._columns)

    def write_record(self, record: Record) -> bytes:
        """Return the record as a row."""
        return csv_row(list(self.make_row(record).values()))


def csv_row(values: Sequence[Any]) -> bytes:
    """Return a row of CSV. Null is an empty cell, and what is no text is JSON."""
    import csv
    import io

    text = io.StringIO()
    cells = [
        "" if each is None else each if isinstance(each, str) else json.dumps(each)
        for each in values
    ]
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()
