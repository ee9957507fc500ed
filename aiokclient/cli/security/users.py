"""The commands of users: their SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import count_of, dry_run_notes
from aiokclient.cli.output import Result, Row, rows_result

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LEAST, MOST = 4096, 16384
"""The numbers of iterations that brokers accept."""
MECHANISM = Option(
    ("--mechanism",),
    f"{' or '.join(MECHANISMS)}. Can be repeated.",
    "NAME",
    choices=MECHANISMS,
    repeated=True,
)


class Iterations(int):
    """A number of iterations that brokers accept."""

    def __new__(cls, text: str) -> Iterations:
        is_number = text.isascii() and text.isdecimal()
        if not is_number or not LEAST <= int(text) <= MOST:
            raise value_error(f"{text!r} is no number from {LEAST} to {MOST}")
        return super().__new__(cls, text)


class ListUsers(AdminCommand):
    """List users with SCRAM credentials, without salts and keys."""

    verb = "list"
    arguments = (Argument("NAME", "Names of users, all without any.", "*"),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each credential."""
        described = await admin.describe_user_scram_credentials(given.name or None)
        rows: list[Row] = [
            {"user": user, "mechanism": each.mechanism.sasl_name, "iterations": each.iterations}
            for user, credentials in sorted(described.succeeded.items())
            for each in credentials
        ]
        return rows_result(["user", "mechanism", "iterations"], rows, described.errors)


class SetUser(AdminCommand):
    """Set the password of a user, who is created if there is none.

    The password is asked for on the terminal, or is the content of --password-file. It is no
    argument, because others could see it. Without --mechanism, it is for SCRAM-SHA-512.
    """

    verb = "set"
    changes = True
    arguments = (Argument("NAME", "The name of the user."),)
    options = (
        MECHANISM,
        Option(
            ("--iterations",),
            f"Rounds of the hash: {LEAST}, the default, to {MOST}.",
            "N",
            type=Iterations,
            default=LEAST,
        ),
        Option(
            ("--password-file",),
            "A file with the password; - is standard input.",
            "FILE",
            completes="files",
        ),
    )

    def run(self, given: Namespace) -> int:
        """Get the password before connecting."""
        if not given.name:
            raise WrongUseError("The name of the user is empty.")
        given.password = None if given.dry_run else read_password(given)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the iterations of each credential before and after."""
        from aiokclient.admin import UserScramCredentialUpsertion

        mechanisms = list(dict.fromkeys(given.mechanism)) or [MECHANISMS[-1]]
        before = await read_credentials(admin, given.name)
        if not given.dry_run:
            changes = [
                UserScramCredentialUpsertion(given.name, given.password, each, given.iterations)
                for each in mechanisms
            ]
            (await admin.alter_user_scram_credentials(changes)).raise_for_errors()
        rows = [
            {
                "user": given.name,
                "mechanism": each,
                "before": before.get(each),
                "after": int(given.iterations),
            }
            for each in mechanisms
        ]
        return rows_result(list(rows[0]), rows, notes=dry_run_notes(given))


class DeleteUsers(AdminCommand):
    """Delete the SCRAM credentials of users, who cannot log in with them any more.

    With --mechanism, only those for it. ACLs and quotas of the users remain.
    """

    verb = "delete"
    changes = True
    destroys = True
    arguments = (Argument("NAME", "Names of users; - reads them from standard input.", "+"),)
    options = (MECHANISM,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each credential that was deleted."""
        from aiokclient.admin import UserScramCredentialDeletion

        described = await admin.describe_user_scram_credentials(given.name)
        failures: dict[str, Exception] = dict(described.errors)
        chosen: dict[str, list[str]] = {}
        for user, credentials in described.succeeded.items():
            names = [each.mechanism.sasl_name for each in credentials]
            wanted = given.mechanism or names
            chosen[user] = [name for name in names if name in wanted]
            if missing := [name for name in wanted if name not in names]:
                text = f"The user has no credential for {' and '.join(missing)}."
                failures[user] = NotFoundError(text)
        chosen = {user: names for user, names in chosen.items() if names}
        if chosen:
            confirm(given, f"Delete the credentials of {count_of(list(chosen), 'user')}?")
        if chosen and not given.dry_run:
            deleted = await admin.alter_user_scram_credentials(
                [
                    UserScramCredentialDeletion(user, name)
                    for user, names in chosen.items()
                    for name in names
                ]
            )
            failures |= deleted.errors
            chosen = {user: chosen[user] for user in deleted.succeeded}
        rows: list[Row] = [
            {"user": user, "mechanism": name} for user, names in chosen.items() for name in names
        ]
        return rows_result(["user", "mechanism"], rows, failures, dry_run_notes(given))


def read_password(given: Namespace) -> Any:
    """Return the password from the file, standard input, or the terminal. Raises WrongUseError."""
    import sys

    from aiokclient.cli.profiles import ask_secret, read_secret

    subject = f"The password of {given.name}"
    if given.password_file == "-":
        password = (sys.stdin.readline() if sys.stdin is not None else "").rstrip("\r\n")
    elif given.password_file is not None:
        password = read_secret(subject, {"file": given.password_file})
    else:
        try:
            password = ask_secret(subject)
        except WrongUseError as error:
            raise WrongUseError(f"{error} Give --password-file.") from None
        if password and ask_secret("The same again") != password:
            raise WrongUseError("The two passwords differ. Nothing was changed.")
    if not password:
        raise WrongUseError(f"{subject} is empty. Nothing was changed.")
    return password


async def read_credentials(admin: Admin, user: str) -> dict[str, int]:
    """Return the iterations of a user's credentials by mechanism. Raises all errors but absence."""
    from aiokclient.errors import ResourceNotFoundError

    described = await admin.describe_user_scram_credentials([user])
    for error in described.errors.values():
        if not isinstance(error, ResourceNotFoundError):
            raise error
    credentials = described.succeeded.get(user, ())
    return {each.mechanism.sasl_name: each.iterations for each in credentials}


COMMANDS: Sequence[type[Command]] = (ListUsers, SetUser, DeleteUsers)
