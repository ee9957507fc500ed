"""The commands of the metadata quorum, whose members are the controllers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
    value_error,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, Table, as_json, iso_time, rows_result
from aiokclient.cli.values import KafkaId

if TYPE_CHECKING:
    from argparse import Namespace
    from uuid import UUID

    from aiokclient import Admin
    from aiokclient.admin import QuorumInfo, QuorumReplica

ID = Argument("ID", "The id of the controller.", type=int)
DIRECTORY = Option(
    ("--directory-id",),
    "The id of its metadata directory. By default, it is looked up.",
    "ID",
    type=KafkaId,
)
STATUS = "status"
REPLICATION = "replication"


class Endpoint:
    """A listener of a controller with its address, as LISTENER://HOST:PORT."""

    def __init__(self, text: str) -> None:
        self.listener, slashes, address = text.partition("://")
        host, _, port = address.rpartition(":")
        self.host = host.removeprefix("[").removesuffix("]")
        if not slashes or not self.listener or not self.host or not port.isdecimal():
            raise value_error(
                f"{text!r} is not LISTENER://HOST:PORT, such as CONTROLLER://kafka-4:9093"
            )
        self.port = int(port)


class DescribeQuorum(AdminCommand):
    """Describe the metadata quorum: its leader, its voters, and its observers.

    The leader is the active controller. The lag of a replica is the number of offsets from its end
    to that of the leader, and its lag in time is how long ago it was at the end of the leader.
    """

    verb = "describe"
    accepts_controllers = True
    options = (
        Option(
            ("--show",),
            f"Show only the {STATUS} of the quorum, or the {REPLICATION}.",
            "TABLE",
            choices=(STATUS, REPLICATION),
        ),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the quorum, a table of it, and one of its replicas."""
        quorum = await admin.describe_metadata_quorum()
        replicas = list(replica_rows(quorum))
        followers = [each for each in replicas if each["role"] == "follower"]
        observers = [each for each in replicas if each["role"] == "observer"]
        voters = [each for each in replicas if each["role"] != "observer"]
        status = {
            "leader_id": quorum.leader_id,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "max_follower_lag": max((each["lag"] for each in followers), default=0),
            "max_follower_lag_ms": max(
                (each["lag_ms"] for each in followers if each["lag_ms"] is not None), default=None
            ),
        }
        ids = {
            "voters": [each["replica_id"] for each in voters],
            "observers": [each["replica_id"] for each in observers],
        }
        data = {
            **status,
            "voters": voters,
            "observers": observers,
            "endpoints": as_json(quorum.endpoints),
        }
        columns = ["replica_id", "directory_id", "role", "log_end_offset", "lag", "lag_ms"]
        columns += ["last_fetch_timestamp_iso", "last_caught_up_timestamp_iso"]
        tables = {
            STATUS: Table([*status, *ids], [{**status, **ids}]),
            REPLICATION: Table(columns, replicas),
        }
        return Result(data, [tables[given.show]] if given.show else list(tables.values()))


class AddVoter(AdminCommand):
    """Make a controller a voter of the quorum.

    The controller runs already, as an observer. Needs the feature kraft.version at level 1.
    """

    verb = "add"
    changes = True
    accepts_controllers = True
    arguments = (ID,)
    options = (
        Option(
            ("--endpoint",),
            "The address of a listener of the controller. Can be repeated.",
            "LISTENER://HOST:PORT",
            type=Endpoint,
            repeated=True,
        ),
        DIRECTORY,
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for the controller that was added."""
        from aiokclient.admin import RaftVoterEndpoint

        if not given.endpoint:
            raise WrongUseError(
                f"Give the address of controller {given.id}, such as "
                "--endpoint CONTROLLER://HOST:PORT."
            )
        endpoints = [RaftVoterEndpoint(e.listener, e.host, e.port) for e in given.endpoint]
        directory_id = given.directory_id and given.directory_id.uuid
        if directory_id is None:
            observers = (await admin.describe_metadata_quorum()).observers
            if given.id not in [each.replica_id for each in observers]:
                raise WrongUseError(
                    f"Controller {given.id} is no observer of the quorum. Start it, or give "
                    "--directory-id."
                )
            directory_id = find_directory(observers, given.id)
        if not given.dry_run:
            await admin.add_raft_voter(given.id, directory_id, endpoints)
        row = voter_row(given.id, directory_id) | {"endpoints": as_json(endpoints)}
        return rows_result(list(row)[:2], [row], notes=dry_run_notes(given))


class RemoveVoter(AdminCommand):
    """Remove a controller from the voters of the quorum.

    Also the leader can be removed, after which another controller leads. Needs the feature
    kraft.version at level 1.
    """

    verb = "remove"
    changes = True
    accepts_controllers = True
    arguments = (ID,)
    options = (
        DIRECTORY,
        Option(("--unregister",), "Also remove the registration of the controller (Kafka 4.4)."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for the controller that was removed."""
        directory_id = given.directory_id and given.directory_id.uuid
        if directory_id is None:
            voters = (await admin.describe_metadata_quorum()).voters
            directory_id = find_directory(voters, given.id)
        if given.unregister:
            confirm(given, f"Remove the registration of controller {given.id}?")
        if not given.dry_run:
            await admin.remove_raft_voter(given.id, directory_id)
            if given.unregister:
                # The voter was just removed, which another broker may not know yet.
                await admin.unregister_controller(given.id, check=False)
        row = voter_row(given.id, directory_id)
        return rows_result(list(row), [row], notes=dry_run_notes(given))


class UnregisterController(AdminCommand):
    """Remove the registration of a controller that will not return (Kafka 4.4).

    A controller that is a voter is refused.
    """

    verb = "unregister"
    changes = True
    destroys = True
    accepts_controllers = True
    arguments = (ID,)
    options = (NO_CHECK,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for the controller that was unregistered."""
        voters = (await admin.describe_metadata_quorum()).voters
        if not given.no_check and given.id in [each.replica_id for each in voters]:
            raise WrongUseError(
                f"Controller {given.id} is a voter. Remove it with 'aiokclient quorum remove "
                f"{given.id}' first, or give --no-check."
            )
        confirm(given, f"Remove the registration of controller {given.id}?")
        if not given.dry_run:
            await admin.unregister_controller(given.id, check=False)
        return rows_result(
            ["controller_id"], [{"controller_id": given.id}], notes=dry_run_notes(given)
        )


def find_directory(replicas: Sequence[QuorumReplica], replica_id: int) -> UUID:
    """Return the id of the directory of a replica.

    Raises NotFoundError, and UnsupportedVersionError if the quorum has no such ids.
    """
    from aiokclient.errors import UnsupportedVersionError

    known = {each.replica_id: each.directory_id for each in replicas}
    if replica_id not in known:
        raise NotFoundError(f"There is no voter {replica_id}.")
    directory_id = known[replica_id]
    if directory_id is None:
        raise UnsupportedVersionError(
            "The voters are those of the option controller.quorum.voters, because the feature "
            "kraft.version is 0."
        )
    return directory_id


def voter_row(controller_id: int, directory_id: UUID) -> dict[str, Any]:
    """Return the row of a voter that is added or removed."""
    return {"controller_id": controller_id, "directory_id": as_json(directory_id)}


def replica_rows(quorum: QuorumInfo) -> Iterator[Row]:
    """Yield a row for each voter, and for each observer."""
    leader = next((v for v in quorum.voters if v.replica_id == quorum.leader_id), None)
    for each in (*quorum.voters, *quorum.observers):
        is_voter = each in quorum.voters
        caught_up, fetched = each.last_caught_up_timestamp, each.last_fetch_timestamp
        # Both times are by the leader's clock, for which its own time is that of the response.
        now = leader.last_caught_up_timestamp if leader else None
        end = leader.log_end_offset if leader else quorum.high_watermark
        yield {
            **as_json(each),
            "role": "leader" if each is leader else "follower" if is_voter else "observer",
            "lag": max(0, end - each.log_end_offset),
            "lag_ms": max(0, now - caught_up) if now and caught_up else None,
            "last_fetch_timestamp_iso": iso_time(fetched),
            "last_caught_up_timestamp_iso": iso_time(caught_up),
        }


COMMANDS: Sequence[type[Command]] = (
    DescribeQuorum,
    AddVoter,
    RemoveVoter,
    UnregisterController,
)
