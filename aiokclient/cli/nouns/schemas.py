"""The commands of the schemas in a registry."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.connection import refuse_protected
from aiokclient.cli.event_loop import import_asyncio
from aiokclient.cli.exit_codes import ExitCode
from aiokclient.cli.grammar import Argument, Command, Option, WrongUseError, value_error
from aiokclient.cli.output import Result, Row, Table, rows_result, write_result, write_text
from aiokclient.cli.profiles import read_profile
from aiokclient.cli.registry import REGISTRY, make_registry
from aiokclient.cli.values import TextFile

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient.schema import RegisteredSchema, Schema, SchemaRegistry

TYPES = ("AVRO", "JSON", "PROTOBUF")
ENDINGS = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}
"""The types of schemas by the ends of names of files."""
COLUMNS = ("subject", "version", "id", "guid", "type", "references", "schema")


class Version:
    """A version of a subject: a number from 1 on, `latest`, or `all` where that is allowed."""

    def __init__(self, text: str) -> None:
        is_number = text.isascii() and text.isdecimal() and int(text) > 0
        if not (is_number or text in ("latest", "all")):
            raise value_error(f"{text!r} is no version, such as 3 or latest")
        self.value: int | str = int(text) if is_number else text


class Reference:
    """A reference as NAME=SUBJECT:VERSION."""

    def __init__(self, text: str) -> None:
        name, _, place = text.partition("=")
        subject, _, version = place.rpartition(":")
        if not (name and subject and version.isascii() and version.isdecimal()):
            raise value_error(f"{text!r} is no reference, such as com.example.User=users:1")
        self.name, self.subject, self.version = name, subject, int(version)


SCHEMA = (
    Argument("SUBJECT", "The subject, such as orders-value."),
    Argument("FILE", "The file with the schema; - is standard input.", type=TextFile),
)
SCHEMA_OPTIONS = (
    REGISTRY,
    Option(
        ("--type",),
        "The type of the schema. Files .avsc, .json, and .proto have one; others are Avro.",
        "TYPE",
        choices=TYPES,
    ),
    Option(
        ("--reference",),
        "A schema to which this one refers. Can be repeated.",
        "NAME=SUBJECT:VERSION",
        type=Reference,
        repeated=True,
    ),
    Option(("--normalize",), "Find a schema that differs in its text only."),
)


class RegistryCommand(Command):
    """The base of the commands that ask a schema registry."""

    def run(self, given: Namespace) -> int:
        """Connect to the registry, print the result, and return the exit code."""
        registry = make_registry(given)
        if self.changes or self.destroys:
            refuse_protected(read_profile(given.profile), given)
        import_asyncio(given)
        import asyncio

        async def ask_registry() -> Result:
            async with registry:
                return await self.ask(registry, given)

        return self.print_result(asyncio.run(ask_registry()), given)

    def ask(self, registry: SchemaRegistry, given: Namespace) -> Coroutine[Any, Any, Result]:
        """Return the result of the command."""
        raise NotImplementedError

    def print_result(self, result: Result, given: Namespace) -> int:
        """Print the result, and return the exit code."""
        return write_result(result, given)


class ListSchemas(RegistryCommand):
    """List the subjects of a schema registry, with their versions.

    A subject of a context is :.CONTEXT:SUBJECT. The prefix :*: stands for all contexts. With
    --quiet, the versions are not requested.
    """

    verb = "list"
    arguments = (Argument("PREFIX", "Subjects that begin with this, all without it.", "?"),)
    options = (REGISTRY, Option(("--deleted",), "Include deleted subjects and versions."))

    async def ask(self, registry: SchemaRegistry, given: Namespace) -> Result:
        """Return a row for each subject."""
        import asyncio

        from aiokclient.errors import SchemaRegistryError

        subjects = await registry.subjects(given.prefix or "", deleted=given.deleted)
        if given.quiet:
            return rows_result(["subject"], [{"subject": subject} for subject in subjects])
        asked = (registry.versions(subject, deleted=given.deleted) for subject in subjects)
        found = await asyncio.gather(*asked, return_exceptions=True)
        rows: list[Row] = []
        failures: dict[str, Exception] = {}
        for subject, versions in zip(subjects, found, strict=True):
            if isinstance(versions, SchemaRegistryError):
                failures[subject] = versions
            elif isinstance(versions, BaseException):
                raise versions
            else:
                rows.append({"subject": subject, "versions": versions})
        return rows_result(["subject", "versions"], rows, failures)


class ShowSchema(RegistryCommand):
    """Show a schema: a version of a subject, the latest one without a number, or one by its id.

    With --raw, the output is the schema as the registry has it, and nothing else.
    """

    verb = "show"
    arguments = (
        Argument("SUBJECT", "The subject. With --id, any one of the context.", "?"),
        Argument("VERSION", "The version, or latest.", "?", type=Version),
    )
    options = (
        REGISTRY,
        Option(("--id",), "The id of the schema.", "N", type=int),
        Option(("--guid",), "The GUID of the schema.", "GUID"),
        Option(("--deleted",), "Find a deleted version, too."),
        Option(("--raw",), "Print the schema only."),
    )

    def run(self, given: Namespace) -> int:
        """Check the arguments, and show the schema."""
        chosen = (given.id is not None, given.guid is not None, given.subject is not None)
        if not any(chosen):
            raise WrongUseError("Give SUBJECT, --id, or --guid.")
        if (given.id is not None and given.guid is not None) or (
            given.version is not None and any(chosen[:2])
        ):
            raise WrongUseError("Give only one of VERSION, --id, and --guid.")
        refuse_all(given.version)
        return super().run(given)

    async def ask(self, registry: SchemaRegistry, given: Namespace) -> Result:
        """Return the schema."""
        if given.guid is not None:
            found = await registry.by_guid(given.guid)
        elif given.id is not None:
            found = await registry.by_id(given.id, given.subject)
        else:
            version = "latest" if given.version is None else given.version.value
            found = await registry.version(given.subject, version, deleted=given.deleted)
        return schema_result(found)

    def print_result(self, result: Result, given: Namespace) -> int:
        """Print the schema alone, or the result."""
        if not given.raw:
            return super().print_result(result, given)
        text: str = result.data[0]["schema"]
        write_text(text if text.endswith("\n") else f"{text}\n")
        return ExitCode.SUCCESS


class RegisterSchema(RegistryCommand):
    """Register a schema in a subject, unless it is there.

    With --dry-run, the registry is asked whether the schema is compatible with the latest version.
    """

    verb = "register"
    changes = True
    arguments = SCHEMA
    options = SCHEMA_OPTIONS

    async def ask(self, registry: SchemaRegistry, given: Namespace) -> Result:
        """Return the schema with its id."""
        schema = schema_of(given)
        if given.dry_run:
            return await check_schema(registry, given.subject, schema, "latest")
        return schema_result(await registry.register(given.subject, schema, given.normalize))


class CheckSchema(RegistryCommand):
    """Check whether a schema is compatible with a version of a subject. Registers nothing.

    The subject's compatibility level says what is allowed. The exit code is 1 if it is not
    compatible.
    """

    verb = "check"
    arguments = SCHEMA
    options = (
        *SCHEMA_OPTIONS[:3],
        Option(
            ("--version",),
            "The version, latest, or all that the level demands.",
            "V",
            type=Version,
        ),
    )

    async def ask(self, registry: SchemaRegistry, given: Namespace) -> Result:
        """Return whether the schema is compatible, and why not."""
        version = "latest" if given.version is None else given.version.value
        return await check_schema(registry, given.subject, schema_of(given), version)

    def print_result(self, result: Result, given: Namespace) -> int:
        """Print the result. The exit code says whether the schema is compatible."""
        code = super().print_result(result, given)
        return code if result.data[0]["compatible"] else ExitCode.FAILED


class DeleteSchemas(RegistryCommand):
    """Delete subjects, or one version of a subject.

    Consumers can still read records with a deleted schema. --permanent, in a second call, deletes
    it for good, so that nobody can read its records any more.
    """

    verb = "delete"
    changes = True
    destroys = True
    arguments = (Argument("SUBJECT", "Subjects; - reads them from standard input.", "+"),)
    options = (
        REGISTRY,
        Option(("--version",), "Delete this version of the subject only.", "V", type=Version),
        Option(("--permanent",), "Delete for good what was deleted before."),
    )

    async def ask(self, registry: SchemaRegistry, given: Namespace) -> Result:
        """Return the versions that were deleted."""
        from aiokclient.errors import SchemaRegistryError

        refuse_all(given.version)
        if given.version is not None and len(given.subject) > 1:
            raise WrongUseError("--version needs one SUBJECT.")
        what = "the subjects" if len(given.subject) > 1 else "the subject"
        part = "" if given.version is None else f"version {given.version.value} of "
        how = " for good" if given.permanent else ""
        confirm(given, f"Delete {part}{what} {', '.join(given.subject)}{how}?")
        rows: list[Row] = []
        failures: dict[str, Exception] = {}
        for subject in given.subject:
            try:
                versions = await self._delete(registry, subject, given)
            except SchemaRegistryError as error:
                failures[subject] = error
            else:
                rows.append({"subject": subject, "versions": versions})
        notes = ["Nothing was changed."] if given.dry_run else []
        return rows_result(["subject", "versions"], rows, failures, notes)

    async def _delete(self, registry: SchemaRegistry, subject: str, given: Namespace) -> list[int]:
        if given.version is not None:
            if given.dry_run:
                found = await registry.version(
                    subject, given.version.value, deleted=given.permanent
                )
                return [found.version or 0]
            version = given.version.value
            return [await registry.delete_version(subject, version, permanent=given.permanent)]
        if given.dry_run:
            return await registry.versions(subject, deleted=given.permanent)
        return await registry.delete_subject(subject, permanent=given.permanent)


def refuse_all(version: Version | None) -> None:
    """Raise WrongUseError for the word `all`, which stands for no single version."""
    if version is not None and version.value == "all":
        raise WrongUseError("all is no version here. Give a number, or latest.")


def schema_of(given: Namespace) -> Schema:
    """Return the schema of a file, with its type and references."""
    from aiokclient.schema import Schema, SchemaReference

    name = given.file.name
    ending = next((each for each in ENDINGS if name.endswith(each)), ".avsc")
    return Schema(
        given.file.text,
        given.type or ENDINGS[ending],
        [SchemaReference(each.name, each.subject, each.version) for each in given.reference],
    )


async def check_schema(
    registry: SchemaRegistry, subject: str, schema: Schema, version: int | str
) -> Result:
    """Return whether a schema is compatible. It is if the subject has no schema yet."""
    from aiokclient.errors import SchemaNotFoundError

    notes: list[str] = []
    try:
        checked = await registry.check(subject, schema, None if version == "all" else version)
        is_compatible, messages = checked.is_compatible, list(checked.messages)
    except SchemaNotFoundError:
        if version not in ("latest", "all"):
            raise
        is_compatible, messages = True, []
        notes = [f"The subject {subject} has no schema yet."]
    row: Row = {
        "subject": subject,
        "version": version,
        "compatible": is_compatible,
        "messages": messages,
    }
    return rows_result(list(row), [row], notes=notes)


def schema_result(found: RegisteredSchema) -> Result:
    """Return the row of a schema. On a terminal, the schema itself has a table of its own."""
    schema = found.schema
    row: Row = {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "guid": None if found.guid is None else str(found.guid),
        "type": schema.type,
        "references": [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ],
        "schema": schema.text,
    }
    return Result([row], [Table(list(COLUMNS), [row])])


COMMANDS: Sequence[type[Command]] = (
    ListSchemas,
    ShowSchema,
    RegisterSchema,
    CheckSchema,
    DeleteSchemas,
)
