"""The list of groups, and the choice of groups by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import AdminCommand, Argument, Option, WrongUseError, value_error
from aiokclient.cli.nouns.groups.progress import ISOLATION_LEVEL, read_progress
from aiokclient.cli.nouns.topics import choose_names, without_absent
from aiokclient.cli.output import Result, Row, Table, as_json

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import GroupListing

TYPES = ("classic", "consumer", "share", "streams")
STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
    "Dead",
)
GROUPS = Argument("GROUP", "Names of groups; - reads them from standard input.", "*", str, "groups")
ALL = Option(("--all",), "All groups.")
REGEX = Option(("--regex",), "The names are regular expressions that match whole names.")


class GroupTypes:
    """Types of groups that are separated by commas."""

    def __init__(self, text: str) -> None:
        self.names = known_words(text, TYPES)


class GroupStates:
    """States of groups that are separated by commas, in upper or lower case."""

    def __init__(self, text: str) -> None:
        self.names = known_words(text, STATES)


def known_words(text: str, known: Sequence[str]) -> list[str]:
    """Return the words that are separated by commas, in the case in which they are known.

    Raises ArgumentTypeError for another word. A broker would find no group for it.
    """
    names = {each.lower(): each for each in known}
    words = text.lower().split(",")
    if unknown := [word for word in words if word not in names]:
        raise value_error(f"{unknown[0]!r} is none of {', '.join(known)}")
    return [names[word] for word in words]


class ListGroups(AdminCommand):
    """List the groups of all types.

    With --lag, the group with the largest lag comes first. The lag is the sum over all partitions
    that have a committed offset.
    """

    verb = "list"
    watches = True
    options = (
        Option(
            ("--type",),
            f"Groups of these types: {', '.join(TYPES)}.",
            "TYPE[,...]",
            type=GroupTypes,
            completes=" ".join(TYPES),
        ),
        Option(
            ("--state",),
            f"Groups in these states: {', '.join(STATES)}.",
            "STATE[,...]",
            type=GroupStates,
            completes=" ".join(STATES),
        ),
        Option(
            ("--protocol",),
            "Groups of these protocol types; an empty one is that of groups that only store "
            "offsets, as in consumer,",
            "NAME[,...]",
        ),
        Option(("--lag",), "Show the lag of each group, the largest first."),
        ISOLATION_LEVEL,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each group."""
        listed = await admin.list_groups(
            states=given.state.names if given.state else (),
            types=given.type.names if given.type else (),
        )
        if given.protocol is not None:
            protocols = given.protocol.split(",")
            listed = {
                name: each for name, each in listed.items() if each.protocol_type in protocols
            }
        data: list[Row] = [as_json(each) for each in listed.values()]
        failures: dict[str, Exception] = {}
        columns = ["group_id", "type", "protocol_type", "state", "coordinator"]
        if given.lag:
            progress, errors = await read_progress(admin, types_of(listed), given)
            # A group that was deleted meanwhile is none of the groups.
            failures = without_absent(errors)
            data = [
                {**row, **sum_lag(progress[row["group_id"]])}
                for row in data
                if row["group_id"] in progress
            ]
            data.sort(key=lambda row: -1 if row["lag"] is None else row["lag"], reverse=True)
            columns = ["group_id", "type", "state", "lag", "partition_count"]
        rows = [{**row, "coordinator": row["coordinator"]["node_id"]} for row in data]
        return Result(data, [Table(columns, rows)], failures)


def sum_lag(partitions: Sequence[Row]) -> Row:
    """Return the lag of a group, None if it is not known for any partition."""
    lags = [row["lag"] for row in partitions if row["lag"] is not None]
    return {"lag": sum(lags) if lags else None, "partition_count": len(partitions)}


def types_of(listed: Mapping[str, GroupListing]) -> dict[str, str]:
    """Return the type of each group."""
    return {name: each.type for name, each in listed.items()}


async def choose_groups(
    admin: Admin, given: Namespace
) -> tuple[dict[str, GroupListing], dict[str, Exception]]:
    """Return the groups that were typed, or all of them with --all, and the errors of the others.

    Raises WrongUseError if neither or both were typed.
    """
    if bool(given.group) == given.all:
        raise WrongUseError("Give either names of groups, or --all.")
    listed = await admin.list_groups()
    names, failures = choose_names(listed, given.group, given.regex, "group")
    if failures and not given.regex:
        # The list lacks groups that the user may not describe, too.
        failures |= await find_refusals(admin, failures)
    return {name: listed[name] for name in names}, failures


async def find_refusals(admin: Admin, groups: Iterable[str]) -> dict[str, Exception]:
    """Return the error of each group that the user may not describe."""
    from aiokclient.errors import GroupAuthorizationError

    errors = (await admin.describe_groups(groups)).errors
    refusal = GroupAuthorizationError.code
    return {name: error for name, error in errors.items() if error.code == refusal}


async def find_type(admin: Admin, group: str) -> str:
    """Return the type of a group. Raises NotFoundError or GroupAuthorizationError."""
    listed = await admin.list_groups()
    if group not in listed:
        for error in (await find_refusals(admin, [group])).values():
            raise error
        raise NotFoundError(f"{group}: There is no such group.")
    return listed[group].type
