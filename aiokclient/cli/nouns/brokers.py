"""The commands of brokers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from aiokclient.cli.asking import confirm
from aiokclient.cli.exit_codes import NotFoundError
from aiokclient.cli.grammar import (
    NAME,
    NO_CHECK,
    AdminCommand,
    Argument,
    Command,
    Option,
    WrongUseError,
)
from aiokclient.cli.nouns.reassign import (
    SHOW,
    THROTTLE,
    ProgressLines,
    plan_result,
    say_what_was_undone,
)
from aiokclient.cli.nouns.topics import dry_run_notes
from aiokclient.cli.output import Result, Row, as_json, rows_result

if TYPE_CHECKING:
    from aiokclient import Admin, Client
    from aiokclient.admin import BrokerDescription
    from aiokclient.protocol.messages import ApiVersionsResponse

ID = Argument("ID", "The id of the broker.", type=int, completes="brokers")


class ListBrokers(AdminCommand):
    """List the brokers, with the addresses of the listener that this command is connected to.

    With --bootstrap-controller, these are the controllers.
    """

    verb = "list"
    accepts_controllers = True
    options = (
        Option(("--fenced",), "Include brokers that are registered, but do not run (Kafka 4.0)."),
    )

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for each broker."""
        described = await admin.describe_cluster(include_fenced_brokers=given.fenced)
        columns = ["node_id", "host", "port", "rack", *(["fenced"] if given.fenced else [])]
        return rows_result(columns, [as_json(each) for each in described.brokers])


class DescribeVersions(Command):
    """List the versions of each API that brokers support, and the one that this library uses.

    Without a usable version, there is none that both know, or the API is only for other brokers.
    """

    verb = "versions"
    arguments = (
        Argument("ID", "Ids of brokers, all without any.", "*", type=int, completes="brokers"),
    )

    def run(self, given: Namespace) -> int:
        """Connect a client, print a row for each API of each broker, and return the exit code."""
        import asyncio

        from aiokclient.cli.output import write_result

        return write_result(asyncio.run(self._connect(given)), given)

    async def _connect(self, given: Namespace) -> Result:
        from aiokclient import Admin, Client
        from aiokclient.cli.connection import Notice, make_client

        client = make_client(Client, self, given)
        notice = Notice(client, given)
        try:
            async with client, Admin(client=client) as admin:
                notice.cancel()
                return await describe_versions(client, admin, given.id)
        finally:
            notice.cancel()


class UnregisterBroker(AdminCommand):
    """Remove the registration of a broker that will not return.

    Its replicas remain assigned to it: move them before with `aiokclient brokers drain`. A broker
    that runs is refused, because it would vanish from the cluster until its next start.
    """

    verb = "unregister"
    changes = True
    destroys = True
    accepts_controllers = True
    arguments = (ID,)
    options = (NO_CHECK,)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return a row for the broker that was unregistered."""
        from aiokclient.errors import IllegalStateError

        # Controllers list no brokers. The library finds out by the quorum which ones run.
        is_listed = given.bootstrap_controller is None
        row: Row = {"node_id": given.id}
        if is_listed and not given.no_check:
            row = as_json(await find_stopped(admin, given.id))
        confirm(given, f"Remove the registration of broker {given.id}?")
        if not given.dry_run:
            try:
                await admin.unregister_broker(given.id, check=not is_listed and not given.no_check)
            except IllegalStateError:
                raise still_runs(given.id) from None
        return rows_result(list(row), [row], notes=dry_run_notes(given))


class DrainBroker(AdminCommand):
    """Move all replicas and leaders off a broker, and wait until that is done.

    The replicas go to the other brokers that run. As few as possible move, and racks keep what they
    have. If the command fails or is interrupted, what is not complete is moved back.
    """

    verb = "drain"
    changes = True
    arguments = (ID,)
    options = (THROTTLE, SHOW)

    async def ask(self, admin: Admin, given: Namespace) -> Result:
        """Return the plan by which the replicas were moved."""
        lines = ProgressLines()
        drained = admin.drain_broker(
            given.id,
            throttle=given.throttle and given.throttle.bytes,
            dry_run=given.dry_run,
            on_progress=lines,
        )
        plan = await say_what_was_undone(drained, given, lines)
        return plan_result(plan, given, dry_run_notes(given))


async def find_stopped(admin: Admin, broker_id: int) -> BrokerDescription:
    """Return a registered broker that does not run.

    Raises WrongUseError for one that runs, and NotFoundError.
    """
    described = await admin.describe_cluster(include_fenced_brokers=True)
    for broker in described.brokers:
        if broker.node_id == broker_id:
            if not broker.fenced:
                raise still_runs(broker_id)
            return broker
    raise NotFoundError(f"There is no broker {broker_id}.")


def still_runs(broker_id: int) -> WrongUseError:
    """Return the error for a broker that runs."""
    return WrongUseError(
        f"Broker {broker_id} is running, and would not register again before its next start. Stop "
        "it first, or give --no-check."
    )


async def describe_versions(client: Client, admin: Admin, ids: Sequence[int]) -> Result:
    """Return the versions of each API of the brokers with these ids, or of all without any."""
    import asyncio

    from aiokclient import Broker, __version__
    from aiokclient.errors import KafkaError
    from aiokclient.protocol.messages import ApiVersionsRequest

    brokers = {each.node_id: each for each in (await admin.describe_cluster()).brokers}
    chosen = dict.fromkeys(ids or brokers)
    failures: dict[str, Exception] = {
        f"broker {each}": NotFoundError(f"No broker {each} is running.")
        for each in chosen
        if each not in brokers
    }

    async def ask(node_id: int) -> list[Row]:
        request = ApiVersionsRequest(client_software_name=NAME, client_software_version=__version__)
        try:
            response = await client.request(request, to=Broker(node_id))
        except KafkaError as error:
            failures[f"broker {node_id}"] = error
            return []
        return list(version_rows(brokers[node_id], response))

    asked = await asyncio.gather(*(ask(each) for each in chosen if each in brokers))
    rows = [row for part in asked for row in part]
    columns = ["node_id", "api_key", "name", "min_version", "max_version", "usable_version"]
    return rows_result(columns, rows, failures)


def version_rows(broker: BrokerDescription, response: ApiVersionsResponse) -> Iterator[Row]:
    """Yield a row for each API of a broker."""
    for api in sorted(response.api_keys, key=lambda each: each.api_key):
        name, ours = find_own_versions(api.api_key)
        common = [version for version in ours if api.min_version <= version <= api.max_version]
        yield {
            "node_id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "api_key": api.api_key,
            "name": name,
            "min_version": api.min_version,
            "max_version": api.max_version,
            "usable_version": max(common, default=None),
        }


def find_own_versions(key: int) -> tuple[str | None, Iterable[int]]:
    """Return the name of an API and the versions that this library has, if it knows the API."""
    from aiokclient.protocol import ApiKey, messages

    try:
        name = ApiKey(key).api_name
    except ValueError:
        return None, ()
    request = getattr(messages, f"{name}Request")
    return name, range(request.min_version, request.max_version + 1)


COMMANDS: Sequence[type[Command]] = (
    ListBrokers,
    DescribeVersions,
    UnregisterBroker,
    DrainBroker,
)
