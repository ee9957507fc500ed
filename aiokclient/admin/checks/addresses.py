"""Whether the addresses of a cluster can be used: names, TCP, TLS, protocol, and login.

Each server is connected to once, on a connection of its own, by the steps with which a client
connects (`network.setup`). The class of the error tells which step has failed; all steps before it
have succeeded. A client can need none of this to have started, so that the checks also explain why
a start fails.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import aiokclient.network.diagnosis as diagnosis
from aiokclient.admin.checks.report import ReportNotes, counted, listed_names
from aiokclient.clock import Clock
from aiokclient.cluster.client import ClusterClient
from aiokclient.cluster.lifecycle.ownership import for_background
from aiokclient.cluster.metadata.controllers import as_metadata, check_kind, make_brokers_request
from aiokclient.cluster.requests.per_item import ask_in_parallel
from aiokclient.config.client import ClientConfig
from aiokclient.config.kinds import bare, written
from aiokclient.errors import (
    BootstrapError,
    ConfigError,
    DisconnectedError,
    InvalidMetadataError,
    KafkaError,
    RebootstrapRequiredError,
    TicketError,
    TlsError,
    TokenProviderError,
    TokenRefusedError,
    error_for,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.probe import advise_login
from aiokclient.network.setup import (
    RUNGS,
    ConnectionSettings,
    SetupProgress,
    identifying_request,
    open_connection,
)
from aiokclient.network.transport import resolve
from aiokclient.policy import refuses_login
from aiokclient.protocol.api import ApiKey
from aiokclient.protocol.messages.api_versions import ApiVersionsResponse
from aiokclient.protocol.messages.metadata import MetadataResponse
from aiokclient.types.named_tuple import NamedTuple

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import BrokerInfo
    from aiokclient.protocol.messages.metadata import MetadataResponseBroker

ADDRESSES_SHARE: Final = 0.3
"""The fraction of the timeout that the bootstrap servers may take, and the brokers as much."""
STEPS_AT_LEAST: Final = 3
"""The steps of connecting that fit into the time limit of one server."""

STEPS: Final = ("names", "tcp", "tls", "protocol", "login")
"""The steps of connecting, each of which is a check."""

SEEN: Final = {
    "tcp": "The connection was accepted.",
    "tls": "The TLS handshake succeeded.",
    "protocol": "It answers in Kafka's protocol.",
}
"""The outcome of a step that succeeded, if a later one has failed."""

ADVICE: Final = {
    "names": "Check the name, and whether this machine can resolve it.",
    "tcp": "Check the host and the port, that the broker is running, and that no firewall is in "
    "the way.",
    "tls": "Check the certificates, and the versions of TLS, of both sides.",
    "protocol": "Check that the port is that of a listener for clients, and the broker's log.",
    "login": "Check that the listener expects this login, and the client's credentials.",
}
"""Advice about a step that has failed, unless the error has better advice."""

ADVERTISED: Final = " The broker advertises this address in its option advertised.listeners."

ADVISING: Final = re.compile(r"(?<=\.) (?=(?:Check|Set|Use|Give|Renew|Add)\b)")
"""The beginning of the advice in the text of an error. Such texts end with it."""

SASL_APIS: Final = (ApiKey.SASL_HANDSHAKE.api_name, ApiKey.SASL_AUTHENTICATE.api_name)

SOON_DAYS: Final = 30
"""A certificate that expires within so many days is a finding."""
DAY_S: Final = 86_400


class Server(NamedTuple):
    """An address of a cluster. The `node_id` of a bootstrap server is negative.

    `noun` is "broker" or "controller".
    """

    host: str
    port: int
    node_id: int = -1
    noun: str = "broker"

    @property
    def subject(self) -> str:
        """The server in a report."""
        address = written((self.host, self.port))
        if self.node_id < 0:
            kind = "server" if self.noun == "broker" else self.noun
            return f"bootstrap {kind} {address}"
        return f"{self.noun} {self.node_id} ({address})"


class ServerAnswer(NamedTuple):
    """The answers of a server. Only bootstrap servers are asked for the metadata."""

    server: Server
    versions: ApiVersionsResponse
    metadata: MetadataResponse | None


class ReachedCluster(NamedTuple):
    """The brokers of a cluster, and the answers of those that were reached, by their ids."""

    cluster_id: str | None
    brokers: Mapping[int, BrokerInfo | MetadataResponseBroker]
    answers: Mapping[int, ServerAnswer]


class AddressChecks:
    """The checks of the addresses of one cluster. What they see is noted."""

    def __init__(
        self,
        config: ClientConfig,
        settings: ConnectionSettings,
        notes: ReportNotes,
        clock: Clock,
        attempt_s: float,
    ) -> None:
        """Create the checks. `attempt_s` limits each step of connecting, in seconds."""
        self._config = config
        self._settings = settings._replace(request_s=attempt_s)
        self._notes = notes
        self._clock = clock
        self._attempt_s = attempt_s

    async def check_servers(
        self, servers: Iterable[Server], limit_s: float, cluster_id: str | None = None
    ) -> list[ServerAnswer]:
        """Connect to servers at the same time, and return the answers of those that can be used.

        `cluster_id` is what brokers are asked to confirm, with their ids (KIP-1242).
        """
        answers: dict[Server, ServerAnswer] = {}
        wanted = {server: server for server in servers}

        async def check(server: Server, _: Server) -> None:
            answer = await self._check_server(server, limit_s, cluster_id)
            if answer is not None:
                answers[server] = answer

        def note(server: Server, error: KafkaError) -> None:
            self._notes.add_failure("protocol", server.subject, error)

        await ask_in_parallel(wanted, check, note)
        return [answers[server] for server in wanted if server in answers]

    async def _check_server(
        self, server: Server, limit_s: float, cluster_id: str | None
    ) -> ServerAnswer | None:
        progress, seen = SetupProgress(), dict(SEEN)
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._use_server(server, cluster_id, progress, seen)
        except (KafkaError, TimeoutError) as error:
            if not isinstance(error, KafkaError):
                awaited = progress.awaited or "the connection"
                text = f"It did not complete {awaited} within {limit_s:.1f} s."
                error = diagnosis.TimedOutError(text)
            failed = self._find_failed_step(server, error, progress)
            unasked = isinstance(error, TokenProviderError | TokenRefusedError)
            # A token is requested before there is a connection.
            self._note_passed(server, seen, "tcp" if unasked else failed)
            text, advice = _split_advice(error, ADVICE[failed])
            advertised = ADVERTISED if server.node_id >= 0 and failed in ("names", "tcp") else ""
            self._notes.add_finding("error", failed, server.subject, text, advice + advertised)
            return None
        self._note_passed(server, seen, None)
        return answer

    def _note_passed(self, server: Server, seen: dict[str, str], failed: str | None) -> None:
        """Note the steps before the one that has failed."""
        for step in STEPS:
            if step == failed:
                break
            if step == "tls" and self._settings.tls is None:
                continue
            if step in seen and not (step == "login" and self._settings.sasl is None):
                self._notes.add_pass(step, server.subject, seen[step])

    async def _use_server(
        self,
        server: Server,
        cluster_id: str | None,
        progress: SetupProgress,
        seen: dict[str, str],
    ) -> ServerAnswer:
        settings = self._settings
        host = bare(server.host)
        addresses = await resolve(settings.connector, host, server.port, self._attempt_s)
        seen["names"] = f"Its addresses are {listed_names(host for host, _ in addresses)}."
        connection = await self._connect(server, progress)
        progress.awaited = ""
        try:
            if settings.tls is not None:
                seen["tls"] = self._check_certificate(server, connection)
            if settings.sasl is not None:
                seen["login"] = f"The login with {settings.sasl.mechanism} was accepted."
            count = len(connection.broker.api_versions)
            seen["protocol"] = f"It answers as a Kafka {server.noun}, with {counted(count, 'API')}."
            return await self._ask_server(server, cluster_id, connection)
        finally:
            connection.abort()
            await connection.wait_closed()

    async def _connect(self, server: Server, progress: SetupProgress) -> BrokerConnection:
        """Return a connection. A server may know only older versions of ApiVersions."""
        for rung in range(len(RUNGS)):
            try:
                return await open_connection(
                    server.node_id,
                    server.host,
                    server.port,
                    self._settings,
                    timeout_s=self._attempt_s,
                    rung=rung,
                    progress=progress,
                )
            except diagnosis.ClosedEarlyError:
                if rung + 1 == len(RUNGS):
                    raise
        raise AssertionError  # The last attempt returns or raises.

    def _check_certificate(self, server: Server, connection: BrokerConnection) -> str:
        """Note a certificate that expires soon, and return a text about the TLS session."""
        session = connection.read_info("ssl_object")
        if session is None:  # The connector is a simulation.
            return SEEN["tls"]
        ends = (session.getpeercert() or {}).get("notAfter")
        if not isinstance(ends, str):
            return f"{session.version()}. The certificate of the broker was not verified."
        ends_s = ssl.cert_time_to_seconds(ends)
        days = int((ends_s - self._clock.time_ms() / 1000) // DAY_S)
        date = time.strftime("%Y-%m-%d", time.gmtime(ends_s))
        text = f"The certificate is valid until {date}, for {counted(days, 'day')}."
        if days < SOON_DAYS:
            advice = "Renew it, and reload or restart the broker."
            self._notes.add_finding("warning", "tls", server.subject, text, advice)
        return f"{session.version()}. {text}"

    async def _ask_server(
        self, server: Server, cluster_id: str | None, connection: BrokerConnection
    ) -> ServerAnswer:
        """Ask for versions and features, and a bootstrap server for the metadata."""
        address = written((server.host, server.port))
        is_known = cluster_id is not None and server.node_id >= 0
        expected = (cluster_id, server.node_id) if cluster_id is not None and is_known else None
        try:
            versions: Any = await connection.send(
                identifying_request(expected), timeout_s=self._attempt_s
            )
            if versions.error_code == RebootstrapRequiredError.code:
                raise diagnosis.UnresolvedError(f"{address} leads to another broker or cluster.")
            _raise_error(versions.error_code, "ApiVersions")
            metadata: Any = None
            if server.node_id < 0:
                check_kind(self._config, connection.broker)
                request = make_brokers_request(self._config)
                answer: Any = await connection.send(request, timeout_s=self._attempt_s)
                metadata = as_metadata(answer)
                _raise_error(metadata.error_code, request.api_key.api_name)
                if not metadata.brokers:
                    raise InvalidMetadataError(f"{address} names no broker.")
        except DisconnectedError as error:
            if isinstance(error, diagnosis.UnresolvedError) or self._settings.sasl is not None:
                raise
            # A listener that requires a login answers the first ApiVersions, and nothing else.
            advice = await advise_login(server.host, server.port, self._settings, 0)
            if not advice:
                raise
            raise _MissingLoginError(advice) from error
        return ServerAnswer(server, versions, metadata)

    def _find_failed_step(self, server: Server, error: KafkaError, progress: SetupProgress) -> str:
        """Return the step of connecting that an error is about."""
        address = written((server.host, server.port))
        mismatches = diagnosis.tls_port(address), diagnosis.plaintext_port(address)
        if isinstance(error, diagnosis.UnresolvedError):
            return "names"
        if isinstance(error, TlsError | diagnosis.SilentHandshakeError) or any(
            error.message == each.message for each in mismatches
        ):
            return "tls"
        if (
            refuses_login(error)
            or isinstance(
                error, TokenProviderError | TicketError | ConfigError | _MissingLoginError
            )
            or error.api in SASL_APIS
            or progress.awaited.startswith("the SASL")
        ):
            return "login"
        if progress.awaited:
            return "protocol"
        if isinstance(error, diagnosis.ClosedEarlyError) and self._settings.tls is not None:
            return "tls"
        if isinstance(error, diagnosis.NotConnectedError | diagnosis.ClosedEarlyError):
            return "tcp"
        return "protocol" if progress.is_resolved else "names"


async def check_addresses(
    config: ClientConfig,
    notes: ReportNotes,
    known: Mapping[int, BrokerInfo],
    timeout: float,
) -> ReachedCluster:
    """Try the bootstrap servers, and then all brokers at the addresses that they advertise."""
    client = ClusterClient(for_background(config))
    noun = "controller" if config.uses_controllers else "broker"
    limit_s = timeout * ADDRESSES_SHARE
    setup_s = config.socket_connection_setup_timeout_ms / 1000
    try:
        settings = await client.prepare_connections(client.clock.monotonic() + limit_s)
        checks = AddressChecks(
            config, settings, notes, client.clock, min(setup_s, limit_s / STEPS_AT_LEAST)
        )
        servers = [Server(*each, noun=noun) for each in dict.fromkeys(config.initial_servers)]
        answers = await checks.check_servers(servers, limit_s)
        cluster_id, brokers = _join_metadata(notes, answers)
        brokers = brokers or dict(known)
        by_address = {(each.host, each.port): node for node, each in brokers.items()}
        reached = {
            node: answer
            for answer in answers
            if (node := by_address.get((answer.server.host, answer.server.port))) is not None
        }
        tried = {(each.host, each.port) for each in servers}
        others = [
            Server(host, port, node, noun)
            for (host, port), node in by_address.items()
            if (host, port) not in tried
        ]
        more = await checks.check_servers(others, limit_s, cluster_id)
        reached |= {answer.server.node_id: answer for answer in more}
    except (ConfigError, BootstrapError) as error:
        advice = "Correct the options of security=."
        notes.add_finding("error", "tls", "the options of this client", error.message, advice)
        return ReachedCluster(None, {}, {})
    finally:
        await client.close()
    return ReachedCluster(cluster_id, brokers, reached)


def _join_metadata(
    notes: ReportNotes, answers: list[ServerAnswer]
) -> tuple[str | None, dict[int, BrokerInfo | MetadataResponseBroker]]:
    """Return the cluster id, and the brokers that the bootstrap servers name."""
    by_cluster: dict[str | None, list[ServerAnswer]] = {}
    brokers: dict[int, BrokerInfo | MetadataResponseBroker] = {}
    for answer in answers:
        if answer.metadata is not None:
            by_cluster.setdefault(answer.metadata.cluster_id, []).append(answer)
    if not by_cluster:
        return None, brokers
    cluster_id, same = next(iter(by_cluster.items()))
    for answer in same:
        assert answer.metadata is not None
        brokers.update({each.node_id: each for each in answer.metadata.brokers})
    for other, others in by_cluster.items():
        if other != cluster_id:
            notes.add_finding(
                "error",
                "brokers",
                listed_names(each.server.subject for each in others),
                f"It is in the cluster {other}, and {same[0].server.subject} in {cluster_id}.",
                "Give bootstrap_servers of one cluster only.",
            )
    return cluster_id, brokers


class _MissingLoginError(DisconnectedError):
    """An error for a server that has closed the connection, because the client does not log in."""


def _raise_error(code: int, api: str) -> None:
    error = error_for(code, api=api)
    if error is not None:
        raise error


def _split_advice(error: KafkaError, otherwise: str) -> tuple[str, str]:
    """Return what happened, and what to do about it, from the text of an error."""
    if isinstance(error, _MissingLoginError):
        return "It closed the connection at the first request of the client.", error.message
    said = error.message or error.what
    if refuses_login(error):
        return said, error.hint
    text, *advice = ADVISING.split(said, maxsplit=1)
    return text, advice[0] if advice else otherwise
