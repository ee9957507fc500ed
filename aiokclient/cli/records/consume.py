"""The command that reads records."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from aiokclient.cli.grammar import Argument, Command, Option, WrongUseError
from aiokclient.cli.records.formats import (
    AnyForm,
    Delimiter,
    NamedForm,
    RecordFilter,
    SchemaForm,
    Unpack,
)
from aiokclient.cli.records.layouts import (
    FIELDS,
    Contents,
    CsvLayout,
    FormatLayout,
    JsonLayout,
    JsonLinesLayout,
    Layout,
    RecordFormat,
    Token,
    ValueLayout,
    YamlLayout,
)
from aiokclient.cli.records.options import Count, Partitions, Seconds, settle_reading
from aiokclient.cli.registry import REGISTRY, has_registry
from aiokclient.cli.values import Place

ISOLATION = ("read_committed", "read_uncommitted")


class ConsumeRecords(Command):
    r"""Read records, and write each value with a line feed.

    Without -o, reading begins at the end of each partition, on a terminal 10 records before it,
    and in a group at its committed offsets. It goes on until Ctrl-C, unless --until, -n,
    --per-partition, or --idle ends it. The ends of --until are looked up once, at the start.

    positions: start, end, committed, an offset, -N (N before the end), or a time, such as
    2026-01-31, 2026-01-31T12:00 (UTC), @1767225600000 (milliseconds), -10m, +5m, -PT1H.
    --until is exclusive; a time in the future waits for it.

    formats (-f): %s or %v value, %k key, %S %V %K their lengths, %R length as 4 bytes, %t topic,
    %p partition, %o offset, %e leader epoch, %T milliseconds, %d or %d{%Y-%m-%d} time, %h headers,
    %h{%k=%v,} a format for each header, %H their number, %i number of the record; %s{hex} and
    so on for a form; \n \t \r \xHH \NNN

    Internal topics, such as __consumer_offsets, are decoded unless --key-format or --value-format
    is given.
    """

    arguments = (
        Argument(
            "TOPIC",
            "Names of topics, or TOPIC:0,1 for single partitions.",
            "+",
            completes="topics",
        ),
    )
    options = (
        Option(("-o", "--from"), "Where to begin.", "POSITION", type=Place),
        Option(("--until",), "Where to end, before this position.", "POSITION", type=Place),
        Option(("-n", "--max"), "End after N records.", "N", type=Count),
        Option(("--per-partition",), "Read at most N records of each partition.", "N", type=Count),
        Option(("--idle",), "End after this time without a record.", "S", type=Seconds),
        Option(("-p", "--partitions"), "Read these partitions only.", "0,1", type=Partitions),
        Option(("-g", "--group"), "Read as a member of this group.", "GROUP", completes="groups"),
        Option(("--commit",), "Commit to the group what has been written."),
        Option(("--regex",), "The topics are regular expressions that match whole names."),
        Option(("--isolation-level",), "Which records to read.", "LEVEL", choices=ISOLATION),
        Option(
            ("--grep",),
            "Write only matching records: k:PATTERN, v:PATTERN, t:PATTERN, h:NAME=PATTERN, hk:, "
            "hv:; ! before it negates. Repeated: all must match.",
            "PART:PATTERN",
            type=RecordFilter,
            repeated=True,
        ),
        Option(("-f", "--format"), "The format of each record.", "FORMAT", type=RecordFormat),
        Option(
            ("--key-format",),
            "text, json, hex, base64, int (big endian), or auto (text if UTF-8, else base64). With "
            "a schema registry, also avro, json-schema, or protobuf[:MESSAGE], and auto decodes "
            "what has the id of a schema.",
            "FORMAT",
            type=AnyForm,
        ),
        Option(("--value-format",), "As --key-format.", "FORMAT", type=AnyForm),
        REGISTRY,
        Option(
            ("-s", "--unpack"),
            "Unpack fields: < > b B h H i I q Q c s $, as in kcat.",
            "[key=|value=]PACK",
            type=Unpack,
            repeated=True,
        ),
        Option(("-K", "--key-delimiter"), "Write keys, too, and this after them.", "D", Delimiter),
        Option(("-D", "--delimiter"), "Write this after each record.", "D", Delimiter),
        Option(("--null",), "Write this for null.", "TEXT"),
        Option(("-O", "--print-offset"), "Write offsets, too, before the delimiter of -K."),
        Option(("--skip-errors",), "Skip records that cannot be read, with a line about each."),
        Option(("-u", "--unbuffered"), "Write each record as soon as it is read."),
        Option(("-q", "--quiet"), "Write no notes."),
        Option(
            ("--share-group",),
            "Read as a member of this share group, with a lock for each record.",
            "GROUP",
            completes="groups",
        ),
        Option(
            ("--ack",),
            "What becomes of a record of the share group when it is written: accept (the default), "
            "release (it is delivered again), or reject (never again).",
            "TYPE",
            choices=("accept", "release", "reject"),
        ),
    )

    def run(self, given: Namespace) -> int:
        """Read records until the end, and return the exit code."""
        settle_reading(given)
        layout = make_layout(given)
        from aiokclient.cli.records.reading import run_reading

        return run_reading(self, given, layout)


def make_layout(given: Namespace) -> Layout:
    """Return how records are written. Raises WrongUseError for options that do not fit."""
    layouts = {
        "json": JsonLayout,
        "jsonl": JsonLinesLayout,
        "yaml": YamlLayout,
        "csv": CsvLayout,
    }
    chosen = [name for name in layouts if getattr(given, name)]
    lines = {
        "-f": given.format,
        "-K": given.key_delimiter,
        "-D": given.delimiter,
        "-O": given.print_offset or None,
        "--null": given.null,
    }
    for_lines = [name for name, value in lines.items() if value is not None]
    if len(chosen) > 1 or (chosen and for_lines):
        names = [*(f"--{name}" for name in chosen), *for_lines]
        raise WrongUseError(f"Give only one of {', '.join(names)}.")
    columns = [each for each in (given.columns or "").split(",") if each]
    if unknown := [name for name in columns if name not in FIELDS]:
        raise WrongUseError(
            f"There is no column {', '.join(unknown)}. There are {', '.join(FIELDS)}."
        )
    contents = make_contents(given)
    if chosen:
        return layouts[chosen[0]](contents, columns)
    if columns:
        raise WrongUseError("--columns needs --json, --jsonl, --yaml, or --csv. Or choose with -f.")
    return make_line_layout(given, contents)


def make_line_layout(given: Namespace, contents: Contents) -> Layout:
    """Return the layout that writes lines."""
    null = (given.null or "").encode()
    delimiter = given.delimiter.content if given.delimiter else b"\n"
    if given.format is not None:
        if given.key_delimiter or given.delimiter or given.print_offset:
            raise WrongUseError("-f says all that is written: -K, -D, and -O do not go with it.")
        return FormatLayout(given.format.tokens, contents, null)
    if contents.are_plain and not given.key_delimiter and not given.print_offset:
        return ValueLayout(delimiter, null)
    if contents.are_decoded and not given.key_delimiter and not given.print_offset:
        texts = (b'{"key": ', b', "value": ', b"}" + delimiter)
        opening, middle, closing = (Token("", text=text) for text in texts)
        return FormatLayout(
            [opening, Token("k"), middle, Token("s"), closing], contents, null or b"null"
        )
    between = Token("", text=given.key_delimiter.content if given.key_delimiter else b" ")
    tokens = [Token("o"), between] if given.print_offset else []
    tokens += [Token("k"), between] if given.key_delimiter else []
    tokens += [Token("s"), Token("", text=delimiter)]
    return FormatLayout(tokens, contents, null)


def make_contents(given: Namespace) -> Contents:
    """Return the forms of keys and values. Raises WrongUseError if there are two for one."""
    forms: dict[str, Any] = {}
    for part, given_form in (("key", given.key_format), ("value", given.value_format)):
        form = None if given_form is None else given_form.form
        if isinstance(form, NamedForm) and form.name == "auto" and has_registry(given):
            form = SchemaForm("auto")
        forms[part] = form
    given.schema_forms = {
        part: form for part, form in forms.items() if isinstance(form, SchemaForm)
    }
    for each in given.unpack:
        for part in each.parts:
            if forms[part] is not None:
                raise WrongUseError(f"The {part} has two formats. Give only one.")
            forms[part] = each.form
    decode = None
    if forms == {"key": None, "value": None}:
        from aiokclient.cli.records.internal_topics import TOPICS, decode_record

        if any(each.topic in TOPICS for each in given.topics):
            decode = decode_record
    return Contents(forms["key"], forms["value"], decode)


COMMANDS: Sequence[type[Command]] = (ConsumeRecords,)
