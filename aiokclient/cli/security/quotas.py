"""The commands of client quotas (KIP-546)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.grammar import (
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import ClientQuotaEntity

PARTS = ("user", "client_id", "ip")
DEFAULT = "<default>"
"""The text for a default in a table. Documents have `{"default": true}`."""
ENTITY = (
    Option(("--user",), "A user.", "NAME"),
    Option(("--user-default",), "The users without quotas of their own."),
    Option(("--client-id",), "A client id, or with --user that of the user.", "ID"),
    Option(("--client-id-default",), "The client ids without quotas of their own."),
    Option(("--ip",), "An IP address or a host name.", "ADDRESS"),
    Option(("--ip-default",), "The IP addresses without quotas of their own."),
)
QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


class Quota:
    """A quota and its value, such as producer_byte_rate=1000000."""

    def __init__(self, text: str) -> None:
        self.name, _, number = text.partition("=")
        try:
            self.value = float(number)
        except ValueError:
            self.value = math.nan
        if not self.name or not math.isfinite(self.value):
            raise value_error(f"{text!r} is not NAME=NUMBER, such as producer_byte_rate=1000000")


class ListQuotas(AdminCommand):
    """List the quotas that are set: all, or those of some clients.

    --user alice selects alice, and alice with any client id; with --strict, alice alone.
    """

    verb = "list"
    options = (*ENTITY, Option(("--strict",), "Leave out what has other parts, too."))

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        refuse_wrong_parts(given)
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the quotas of each entity."""
        from aiokclient.admin import ClientQuotaFilter

        wanted = ClientQuotaFilter(**typed_parts(given), strict=given.strict)
        described = await admin.describe_client_quotas(wanted)
        rows = [
            (entity, {"quotas": {name: number_of(quotas[name]) for name in sorted(quotas)}})
            for entity, quotas in sorted(described.items(), key=lambda item: str(item[0]))
        ]
        return entities_result(rows, given)


class ChangeQuotas(AdminCommand):
    """The base of the commands that change the quotas of one entity."""

    changes = True

    def read_changes(self, given: Namespace) -> dict[str, float | None]:
        """Return the new values by name."""
        raise NotImplementedError

    def run(self, given: Namespace) -> int:
        """Refuse arguments that do not belong together before connecting."""
        parts = refuse_wrong_parts(given)
        if not parts:
            raise WrongUseError("Give --user, --client-id, or --ip, or one of their defaults.")
        if "ip" in parts and len(parts) > 1:
            raise WrongUseError("An IP address does not go with a user or a client id.")
        return super().run(given)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the values before and after."""
        from aiokclient.admin import ClientQuotaEntity, ClientQuotaFilter

        parts = typed_parts(given)
        entity = ClientQuotaEntity(**parts)
        wanted = self.read_changes(given)
        described = await admin.describe_client_quotas(ClientQuotaFilter(**parts, strict=True))
        before = described.get(entity, {})
        changed = await admin.alter_client_quotas({entity: wanted}, validate_only=given.dry_run)
        changed.raise_for_errors()
        rows = [
            (entity, {"name": name, "before": number_of(before.get(name)), "after": number_of(new)})
            for name, new in wanted.items()
        ]
        return entities_result(rows, given)


class SetQuotas(ChangeQuotas):
    """Set quotas of a user, a client id, a user with a client id, or an IP address.

    Users and client ids have producer_byte_rate, consumer_byte_rate, request_percentage, and
    controller_mutation_rate, IP addresses have connection_creation_rate.
    """

    verb = "set"
    arguments = (Argument("QUOTA", "NAME=NUMBER.", "+", type=Quota, completes=" ".join(QUOTAS)),)
    options = ENTITY

    def read_changes(self, given: Namespace) -> dict[str, float | None]:
        """Return the values that were typed."""
        return {each.name: each.value for each in given.quota}


class UnsetQuotas(ChangeQuotas):
    """Remove quotas of a user, a client id, a user with a client id, or an IP address."""

    verb = "unset"
    arguments = (Argument("NAME", "Names of quotas.", "+", completes=" ".join(QUOTAS)),)
    options = ENTITY

    def read_changes(self, given: Namespace) -> dict[str, float | None]:
        """Return None for each quota."""
        return dict.fromkeys(given.name)


def refuse_wrong_parts(given: Namespace) -> list[str]:
    """Return which parts were typed. Raises WrongUseError for a name together with its default."""
    typed = []
    for part in PARTS:
        name, is_default = getattr(given, part), getattr(given, f"{part}_default")
        option = f"--{part.replace('_', '-')}"
        if is_default and name is not None:
            raise WrongUseError(f"Give either {option} or {option}-default.")
        if name == "":
            raise WrongUseError(f"{option} needs a name. {option}-default is the default.")
        typed += [part] if is_default or name is not None else []
    return typed


def typed_parts(given: Namespace) -> dict[str, Any]:
    """Return the user, the client id, and the IP address that were typed."""
    from aiokclient.admin import ClientQuotaName

    return {
        part: ClientQuotaName.DEFAULT if getattr(given, part) is None else getattr(given, part)
        for part in refuse_wrong_parts(given)
    }


def entities_result(
    rows: Sequence[tuple[ClientQuotaEntity, Mapping[str, Any]]], given: Namespace
) -> Result:
    """Return a result with the parts of an entity at the start of each row."""
    data: list[Row] = []
    shown: list[Row] = []
    for entity, row in rows:
        parts = {part: getattr(entity, part) for part in PARTS}
        names = {part: name for part, name in parts.items() if isinstance(name, str)}
        is_default = {part: part not in names and parts[part] is not None for part in PARTS}
        data.append(
            {
                **{p: {"default": True} if is_default[p] else names.get(p) for p in PARTS},
                **row,
            }
        )
        shown.append({**{p: DEFAULT if is_default[p] else names.get(p) for p in PARTS}, **row})
    columns = [*PARTS, *(rows[0][1] if rows else ["quotas"])]
    is_dry_run = getattr(given, "dry_run", False)
    return Result(data, [Table(columns, shown)], {}, dry_run_notes(given) if is_dry_run else [])


def number_of(value: float | None) -> float | None:
    """Return a number without a fraction of zero."""
    return int(value) if value is not None and value.is_integer() else value


COMMANDS: Sequence[type[Command]] = (ListQuotas, SetQuotas, UnsetQuotas)
