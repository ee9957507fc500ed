"""The command of the cluster as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.exit_codes import one_line
from aiokclient.cli.grammar import AdminCommand, Command, Option
from aiokclient.cli.output import Result, Row, Table, as_json

if TYPE_CHECKING:
    from argparse import Namespace

    from aiokclient import Admin
    from aiokclient.admin import ClusterDescription


class DescribeCluster(AdminCommand):
    """Describe the cluster: its id, its controller, and its brokers.

    The controller is the leader of the metadata quorum, which is not always one of the brokers.
    With --bootstrap-controller, the brokers are the controllers.
    """

    verb = "describe"
    accepts_controllers = True
    options = (Option(("--operations",), "Include what the user may do with the cluster."),)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the cluster, as a table of one row."""
        described = await admin.describe_cluster(include_authorized_operations=given.operations)
        controller_id, notes = await find_controller(admin, described)
        allowed = described.authorized_operations
        data: Row = {
            **as_json(described),
            "controller_id": controller_id,
            "broker_count": len(described.brokers),
            "authorized_operations": None if allowed is None else sorted(map(as_json, allowed)),
        }
        columns = ["cluster_id", "controller_id", "broker_count"]
        columns += ["authorized_operations"] if given.operations else []
        return Result(data, [Table(columns, [data])], notes=notes)


async def find_controller(
    admin: Admin, described: ClusterDescription
) -> tuple[int | None, list[str]]:
    """Return the id of the active controller, and a note if it cannot be known."""
    from aiokclient.errors import ClusterAuthorizationError, UnsupportedVersionError

    try:
        leader_id = (await admin.describe_metadata_quorum()).leader_id
    except UnsupportedVersionError:
        # With ZooKeeper, the metadata name the controller. In KRaft mode, they name any broker.
        return described.controller_id, []
    except ClusterAuthorizationError as error:
        return None, [f"The controller is unknown: {one_line(error)}"]
    return (None if leader_id < 0 else leader_id), []


COMMANDS: Sequence[type[Command]] = (DescribeCluster,)
