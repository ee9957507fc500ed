"""The command that writes records."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence

from aiokclient.cli.grammar import Argument, Command, Option, WrongUseError
from aiokclient.cli.records.formats import Delimiter, SchemaForm, unescape
from aiokclient.cli.records.options import ACKS, CODECS, Count, Rate, find_typed_property
from aiokclient.cli.registry import REGISTRY
from aiokclient.cli.values import Setting


class PartitionNumber:
    """The number of a partition; -1 stands for none, as in kcat."""

    def __init__(self, text: str) -> None:
        self.number = int(text)
        if self.number < -1:
            raise ArgumentTypeError(f"{text!r} is no number of a partition")


class ProduceRecords(Command):
    r"""Send a record for each line of standard input or of files.

    A line is the value of a record, as it is, without its line feed. An empty line is an empty
    value.

    With --jsonl, a line is an object with key, value, headers, and timestamp, as "consume --jsonl"
    writes it. null is null, a text is UTF-8, and {"base64": "..."} are other bytes; anything else
    is sent as JSON. headers is a list of [name, value]. value must be there; what is missing else
    has its default. The partition follows the key unless --keep-partitions is given.

    With --key-format or --value-format, keys or values are JSON, or texts if they are not, and are
    written with the latest schema that the schema registry has for the topic.

    The exit code is 0 only if all records were acknowledged. Otherwise a line says how many were.
    With --transactional-id, all records are committed together, at the end, or none of them.
    """

    prints_result = False
    changes = True
    arguments = (
        Argument("TOPIC", "The name of the topic.", completes="topics"),
        Argument(
            "FILE",
            "Files to read, instead of standard input.",
            "*",
            completes="files",
            are_files=True,
        ),
    )
    options = (
        Option(("--jsonl",), "Each line is an object with key, value, headers, and timestamp."),
        Option(("--whole-files",), "Each file is the value of one record."),
        Option(
            ("-K", "--key-delimiter"), "What is before this in a line is the key.", "D", Delimiter
        ),
        Option(("-D", "--delimiter"), "What ends a line, instead of a line feed.", "D", Delimiter),
        Option(("-k", "--key"), "The key of the records that have none of their own.", "KEY"),
        Option(
            ("-H", "--header"),
            "A header of all records. Can be repeated.",
            "NAME=VALUE",
            type=Setting,
            repeated=True,
        ),
        Option(("--null",), "A value or a key that is this text is null.", "TEXT"),
        Option(("-p", "--partition"), "Send to this partition.", "N", type=PartitionNumber),
        Option(("--keep-partitions",), "Send to the partitions that the lines of --jsonl have."),
        Option(
            ("--key-format",),
            "Write keys with the latest schema of their subject: avro, json-schema, or "
            "protobuf[:MESSAGE].",
            "FORMAT",
            type=SchemaForm,
        ),
        Option(("--value-format",), "As --key-format, for values.", "FORMAT", type=SchemaForm),
        REGISTRY,
        Option(("-n", "--max"), "End after N records.", "N", type=Count),
        Option(("--rate",), "Send at most N records a second.", "N", type=Rate),
        Option(("--sync",), "Wait for each record before the next is sent."),
        Option(("-T", "--tee"), "Write what was sent to standard output."),
        Option(("-z", "--compression"), "The codec of batches.", "CODEC", choices=CODECS),
        Option(("--acks",), "Which replicas acknowledge a record.", "ACKS", choices=ACKS),
        Option(("--transactional-id",), "Send all records in one transaction.", "ID"),
        Option(("-q", "--quiet"), "Write no notes."),
    )

    def run(self, given: Namespace) -> int:
        """Send the records, and return the exit code."""
        refuse_wrong_options(given)
        from aiokclient.cli.records.sending import run_sending

        return run_sending(self, given)


def refuse_wrong_options(given: Namespace) -> None:
    """Raise WrongUseError for options that do not fit together."""
    lines = {
        "-K": given.key_delimiter,
        "--null": given.null,
        "--whole-files": given.whole_files or None,
        "-D": given.delimiter,
    }
    if given.jsonl:
        if other := [name for name, value in lines.items() if value is not None]:
            raise WrongUseError(f"--jsonl and {other[0]} do not go together.")
    elif given.keep_partitions:
        raise WrongUseError("--keep-partitions needs --jsonl.")
    if given.keep_partitions and given.partition is not None:
        raise WrongUseError("Give only one of --partition and --keep-partitions.")
    if given.whole_files and not given.file:
        raise WrongUseError("--whole-files needs files.")
    if given.whole_files and (given.key_delimiter or given.delimiter):
        raise WrongUseError("--whole-files has no lines, and so neither -K nor -D.")
    if given.transactional_id is None:
        given.transactional_id = find_typed_property(given, "transactional.id")
    forms = {"key": given.key_format, "value": given.value_format}
    if any(form is not None and form.name == "auto" for form in forms.values()):
        raise WrongUseError("Records are not written as auto. Give avro, json-schema, or protobuf.")
    given.schema_forms = {part: form for part, form in forms.items() if form is not None}
    given.fixed_key = None if given.key is None else given.key.encode()
    given.null_text = None if given.null is None else unescape(given.null)
    given.headers = [(each.name, each.value.encode()) for each in given.header]


COMMANDS: Sequence[type[Command]] = (ProduceRecords,)
