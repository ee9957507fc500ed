"""The commands of delegation tokens (KIP-48).

The HMAC of a token is its password. Only `create` shows it, because nobody else can: in its result,
or in the file of --hmac-file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import AdminCommand, Argument, Command, Option, WrongUseError
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, iso_time, rows_result
from aiokclient.cli.security.acls import Principal
from aiokclient.cli.values import Duration

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import DelegationToken

TIMES = ("issue_timestamp", "expiry_timestamp", "max_timestamp")
COLUMNS = (
    "token_id",
    "owner",
    "requester",
    "renewers",
    *(f"{name}_iso" for name in TIMES),
)
TOKEN_ID = Argument("TOKEN_ID", "The id of a token that you may describe.", "?")
HMAC_FILE = Option(
    ("--hmac-file",),
    "A file with the HMAC of the token in base64, instead of TOKEN_ID; - is standard input.",
    "FILE",
    completes="files",
)


class ListTokens(AdminCommand):
    """List the delegation tokens that you may describe, without their HMACs."""

    verb = "list"
    options = (
        Option(
            ("--owner",),
            "The owner of the tokens, such as User:alice. Can be repeated.",
            "PRINCIPAL",
            type=Principal,
            repeated=True,
        ),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each token."""
        owners = [each.text for each in given.owner] or None
        tokens = await admin.describe_delegation_token(owners)
        rows = [token_row(each) for each in sorted(tokens, key=lambda each: each.token_id)]
        return rows_result(COLUMNS, rows)


class CreateToken(AdminCommand):
    """Create a delegation token, with which other clients log in as its owner.

    The result has the HMAC of the token, which is the password of those clients, as hmac. With
    --hmac-file, it is written to a new file instead, which only you can read.
    """

    verb = "create"
    changes = True
    options = (
        Option(
            ("--owner",),
            "The owner, such as User:alice; you, if it is not given.",
            "PRINCIPAL",
            type=Principal,
        ),
        Option(
            ("--renewer",),
            "A principal that may renew the token, beside its owner. Can be repeated.",
            "PRINCIPAL",
            type=Principal,
            repeated=True,
        ),
        Option(
            ("--max-lifetime",),
            "How long the token can be renewed, such as 7d; as long as the brokers allow, if it is "
            "not given.",
            "SPAN",
            type=Duration,
        ),
        Option(("--hmac-file",), "The file that gets the HMAC.", "FILE", completes="files"),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the token."""
        owner = given.owner.text if given.owner is not None else None
        renewers = [each.text for each in given.renewer]
        lifetime = given.max_lifetime.milliseconds if given.max_lifetime is not None else -1
        if given.dry_run:
            row = {"owner": owner, "renewers": renewers, "max_lifetime_ms": lifetime}
            return rows_result(list(row), [row], notes=dry_run_notes(given))
        file = open_secret_file(given.hmac_file) if given.hmac_file is not None else None
        try:
            token = await admin.create_delegation_token(
                owner=owner, renewers=renewers, max_lifetime_ms=lifetime
            )
            if file is not None:
                file.write(f"{token.hmac.reveal()}\n")
        except BaseException:
            if file is not None:
                remove_file(given.hmac_file)
            raise
        finally:
            if file is not None:
                file.close()
        hmac = token.hmac.reveal() if file is None else None
        return rows_result([*COLUMNS, "hmac"], [{**token_row(token), "hmac": hmac}])


class ChangeToken(AdminCommand):
    """The base of the commands that change the expiry of a token."""

    changes = True
    arguments = (TOKEN_ID,)

    def run(self, given: Namespace) -> int:
        """Get the HMAC before connecting, if there is no TOKEN_ID."""
        if given.token_id is not None and given.hmac_file is not None:
            raise WrongUseError("Give either TOKEN_ID or --hmac-file.")
        given.hmac = read_hmac(given.hmac_file) if given.token_id is None else None
        return super().run(given)

    async def change_expiry(self, admin: Admin, token: Any, given: Namespace) -> int:
        """Change the expiry of a token, and return it in milliseconds since the epoch."""
        raise NotImplementedError

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the expiry of the token."""
        token = given.hmac
        before = None
        if given.token_id is not None:
            token = await find_token(admin, given.token_id)
            before = token.expiry_timestamp
        after = await self.change_expiry(admin, token, given)
        row = {
            "token_id": given.token_id,
            "expiry_timestamp": after,
            "expiry_timestamp_iso": iso_time(after),
            "expiry_timestamp_before": before,
        }
        columns = ["token_id", "expiry_timestamp_iso"]
        return rows_result(columns, [row], notes=dry_run_notes(given))


class RenewToken(ChangeToken):
    """Renew a delegation token.

    It is named by TOKEN_ID, or by its HMAC: in --hmac-file, or typed on standard input.
    """

    verb = "renew"
    options = (
        HMAC_FILE,
        Option(
            ("--period",),
            "How long the token is valid from now on, such as 1d; as long as the brokers allow, if "
            "it is not given.",
            "SPAN",
            type=Duration,
        ),
    )

    async def change_expiry(self, admin: Admin, token: Any, given: Namespace) -> int:
        """Renew the token, unless this is a dry run."""
        period = given.period.milliseconds if given.period is not None else -1
        if given.dry_run:
            return expiry_after(period)
        return await admin.renew_delegation_token(token, renew_time_period_ms=period)


class ExpireToken(ChangeToken):
    """Let a delegation token expire: immediately, or in --period.

    It is named by TOKEN_ID, or by its HMAC: in --hmac-file, or typed on standard input.
    """

    verb = "expire"
    destroys = True
    options = (
        HMAC_FILE,
        Option(("--period",), "How long the token is still valid.", "SPAN", type=Duration),
    )

    async def change_expiry(self, admin: Admin, token: Any, given: Namespace) -> int:
        """Let the token expire, unless this is a dry run."""
        period = given.period.milliseconds if given.period is not None else -1
        confirm(given, f"Let the token {given.token_id or 'with this HMAC'} expire?")
        if given.dry_run:
            return expiry_after(max(0, period))
        return await admin.expire_delegation_token(token, expiry_time_period_ms=period)


def token_row(token: DelegationToken) -> Row:
    """Return a token with the fields of the library, but without its HMAC."""
    times: dict[str, Any] = {}
    for name in TIMES:
        times[name] = getattr(token, name)
        times[f"{name}_iso"] = iso_time(times[name])
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        **times,
    }


async def find_token(admin: Admin, token_id: str) -> DelegationToken:
    """Return the token with an id. Raises NotFoundError."""
    for each in await admin.describe_delegation_token():
        if each.token_id == token_id:
            return each
    raise NotFoundError(f"There is no token {token_id} that you may describe.")


def expiry_after(period_ms: int) -> int:
    """Return the time after a period; -1 for the longest period, which only the brokers know."""
    import time

    return round(time.time() * 1000) + period_ms if period_ms >= 0 else -1


def read_hmac(path: str | None) -> str:
    """Return the HMAC in a file, from standard input, or typed. Raises WrongUseError."""
    import sys

    from aiokclient.cli.profiles import ask_secret, read_secret

    subject = "The HMAC of the token"
    if path is not None and path != "-":
        hmac = read_secret(subject, {"file": path}).strip()
    elif sys.stdin is None or not sys.stdin.isatty():
        hmac = sys.stdin.readline().strip() if sys.stdin is not None else ""
    else:
        hmac = ask_secret(subject).strip()
    if not hmac:
        raise WrongUseError(f"{subject} is empty. Give TOKEN_ID, --hmac-file, or type it.")
    return hmac


def open_secret_file(path: str) -> Any:
    """Open a new file that only the user can read. Raises WrongUseError."""
    import os

    try:
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
    except OSError as error:
        raise WrongUseError(f"The file {path} cannot be created: {error.strerror}.") from None


def remove_file(path: str) -> None:
    """Remove a file without content, if it is still there."""
    import contextlib
    import os

    with contextlib.suppress(OSError):
        os.unlink(path)


COMMANDS: Sequence[type[Command]] = (ListTokens, CreateToken, RenewToken, ExpireToken)
