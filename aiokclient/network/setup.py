"""The setup of a connection: name resolution, TCP, TLS, ApiVersions, and SASL.

The first request on a connection is ApiVersions, which asks for the supported versions of all APIs.
The client sends it in a version that the broker may not support. Such a broker responds with
UNSUPPORTED_VERSION in the format of version 0, and with the versions of ApiVersions that it
supports (KIP-511). The next try on the connection uses the highest common version, and a further
try uses version 0. A very old broker closes the connection instead. The next connection then begins
with the next version in `RUNGS`.

The setup timeout, which grows with failures to connect, limits connecting and the TLS handshake
together, and then limits the authentication separately. The request timeout limits every other
request, and `RUNGS` limits the number of tries.

The connections to all addresses of one name race, as in Happy Eyeballs (RFC 8305). A name often has
several addresses, some of which do not work: IPv6 addresses in a network without IPv6, or the
address of a host that is down. So the client does not wait for one address before it tries the
next. The attempts begin `STAGGER_S` apart, or as soon as the previous one has failed, and alternate
between IPv6 and IPv4. The first that is connected wins, and the others are cancelled. A winner may
turn out to be unusable after that. Then the addresses that have not failed race again, including
those that were cancelled. Any error other than DisconnectedError (such as a certificate that is not
accepted) ends the race: no further attempt begins, and the error is raised unless an attempt in
progress wins.

An address may have a new owner: another broker, or a broker of another cluster. From version 5 of
ApiVersions on, the client names the expected cluster id and broker id, and a broker with other ids
refuses the connection (KIP-1242). Older brokers ignore the ids. If it matters whether an older
broker is in the same cluster, it is asked for its metadata before any other request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import chain, zip_longest
from logging import DEBUG
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import aiokclient.network.diagnosis as diagnosis
from aiokclient.config.kinds import bare, bracketed, written
from aiokclient.errors import (
    DisconnectedError,
    KafkaError,
    ProtocolError,
    RebootstrapRequiredError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.event_hub import EventHub
from aiokclient.network.tls import TlsContexts, server_name
from aiokclient.network.traffic import Traffic, size_of
from aiokclient.network.transport import Address, Connector, resolve
from aiokclient.protocol.api import ApiKey, negotiate
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokclient.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokclient.protocol.schema import Request, Response
from aiokclient.scopes import new_group
from aiokclient.types.named_tuple import NamedTuple
from aiokclient.types.tls_objects import is_end_of_tls, is_tls_error

if TYPE_CHECKING:
    import ssl

    from aiokclient.network.login import Sasl
    from aiokclient.network.sasl import Login
    from aiokclient.protocol.fields import Buffer
    from aiokclient.scopes import CancelScope

R = TypeVar("R", bound=Response)

STAGGER_S = 0.25
"""Seconds from the beginning of one attempt to that of the next, as RFC 8305 recommends."""

TELLING = (diagnosis.WrongBrokerError, diagnosis.TimedOutError)
"""The errors that matter most if the addresses of one name have different errors: one shows that
the metadata is wrong, and the other that the broker may be reachable later."""


def alternate(addresses: Iterable[Address]) -> list[Address]:
    """Return the addresses with IPv6 and IPv4 in turn, beginning with the family of the first."""
    families: dict[bool, list[Address]] = {}
    for address in dict.fromkeys(addresses):
        families.setdefault(":" in address[0], []).append(address)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [address for address in turns if address is not None]


class AddressRace:
    """The attempts to connect to the addresses of one name."""

    def __init__(self, addresses: Iterable[Address], setup: ConnectionSetup) -> None:
        self._failures: dict[Address, DisconnectedError | None] = dict.fromkeys(
            alternate(addresses)
        )
        self._setup = setup
        self._won: tuple[Address, BrokerConnection] | None = None
        self._fatal: Exception | None = None
        self._ended: asyncio.Future[None] | None = None
        """A future that is done when an attempt has ended."""

    async def find_winner(self) -> tuple[Address, BrokerConnection] | None:
        """Return the first address that is connected, with its connection.

        Return None if each address has failed. Raises any error but DisconnectedError if no
        attempt in progress wins. A cancellation leaves no connection open.
        """
        self._won = None
        left = [address for address, failure in self._failures.items() if failure is None]
        if len(left) == 1:
            # One address needs no task.
            await self._attempt_address(left[0], None)
        else:
            await self._race_addresses(left)
        if self._won is None and self._fatal is not None:
            raise self._fatal
        return self._won

    def mark_failed(self, address: Address, error: DisconnectedError) -> None:
        """Record that the connection of a winner turned out to be unusable."""
        self._failures[address] = error

    def find_early_closer(self) -> tuple[Address, DisconnectedError] | None:
        """Return the first address that closed a connection before it sent anything, or None."""
        for address, error in self._failures.items():
            if isinstance(error, diagnosis.ClosedEarlyError):
                return address, error
        return None

    def make_failure(self, name: str, node_id: int) -> DisconnectedError:
        """Return one error for all addresses, with the error of each. `name` includes the port."""
        failures = {a: error for a, error in self._failures.items() if error is not None}
        errors = list(failures.values())
        if len(errors) == 1:
            return errors[0]
        said = " ".join(_outcome(error, name, host) for (host, _), error in failures.items())
        text = f"{name} cannot be used at any of its {len(errors)} addresses. {said}"
        telling = [error for kind in TELLING for error in errors if isinstance(error, kind)]
        kind = type(telling[0] if telling else errors[-1])
        return kind(text, broker=node_id)

    async def _race_addresses(self, addresses: list[Address]) -> None:
        async with new_group() as group:
            for address in addresses:
                self._ended = asyncio.get_running_loop().create_future()
                group.start_soon(self._attempt_address, address, group.cancel_scope)
                # `asyncio.timeout` would cancel this task, and might conceal another cancellation
                # of it at the same moment.
                await asyncio.wait([self._ended], timeout=STAGGER_S)
                if self._won is not None or self._fatal is not None:
                    break

    async def _attempt_address(self, address: Address, others: CancelScope | None) -> None:
        try:
            connection = await self._setup.connect_address(address)
        except DisconnectedError as error:
            self._failures[address] = error
        except Exception as error:
            # The error is raised when the race is over: a task group would wrap it.
            self._fatal = self._fatal or error
        else:
            if self._won is not None:
                # Two addresses were connected in the same iteration of the event loop.
                connection.abort()
                return
            self._won = address, connection
            if others is not None:
                others.cancel()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


def _outcome(error: DisconnectedError, name: str, host: str) -> str:
    """Return the error text of one address, which begins with the address, not the name."""
    address, text = bracketed(host), error.message or str(error)
    for shown in (f"{name} ({address})", name):
        if text.startswith(shown):
            return address + text[len(shown) :]
    return f"{address}: {text}"


RUNGS = (ApiVersionsRequest.max_version, 3, 0)
"""The versions of ApiVersions with which successive connections begin."""

TLS_HANDSHAKE = "the TLS handshake"
HIGHEST_PORT = 65535

_ERROR_CODE = Struct(">h")


class _Answer(Enum):
    SETTLED = 1
    LOWER = 2
    ELSEWHERE = 3


_ANSWERS = {
    0: _Answer.SETTLED,
    UnsupportedVersionError.code: _Answer.LOWER,
    RebootstrapRequiredError.code: _Answer.ELSEWHERE,
}
"""The meaning of error codes of ApiVersions. Any other code fails the connection."""


CHECKED_FROM: Final = 5
"""The lowest version of ApiVersions with which a broker checks the ids."""

NAMES_CLUSTER: Final = 2
"""The lowest version of Metadata whose response has the cluster id."""

SOFTWARE_NAME: Final = "aiokclient"
SOFTWARE_VERSION: Final = "0.1.0"

Expected = tuple[str, int]
"""The cluster id and the broker id that a connection is meant for."""


class ClusterCheck(Protocol):
    """The identity of a client's cluster, by which new connections are checked."""

    @property
    def checks(self) -> bool:
        """Whether ApiVersions carries the expected ids."""

    def expected_ids(self, node_id: int) -> Expected | None:
        """Return the ids that ApiVersions carries, or None if it carries no ids."""

    def is_in_doubt(self, node_id: int) -> bool:
        """Return whether a broker that has not confirmed the ids must name its cluster."""

    def compare_ids(self, node_id: int, address: str, found: MetadataResponse) -> KafkaError | None:
        """Return an error if the broker has named another cluster."""


def confirms(connection: BrokerConnection) -> bool:
    """Return whether a broker can confirm the ids that ApiVersions carries."""
    return connection.broker.version_of(ApiVersionsRequest) >= CHECKED_FROM


def identifying_request(expected: Expected | None = None) -> ApiVersionsRequest:
    """Return ApiVersions with the ids that the broker is to confirm, if any."""
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    if expected is not None:
        # The broker compares them with its own, and answers REBOOTSTRAP_REQUIRED if they differ
        # (KIP-1242).
        request.cluster_id, request.node_id = expected
    return request


class ConnectionSettings(NamedTuple):
    """The settings of all connections of a client, in seconds and bytes."""

    connector: Connector
    client_id: str
    tls: TlsContexts | None
    receive_max: int
    idle_s: float | None
    traffic: Traffic | None = None
    group_id: str | None = None
    request_s: float = 30.0
    """Seconds until a request that sets up a connection times out."""
    sasl: Sasl | None = None
    events: EventHub | None = None
    cluster: ClusterCheck | None = None


class SetupProgress:
    """The progress of the setup of a connection."""

    __slots__ = ("awaited", "is_resolved")

    def __init__(self) -> None:
        self.is_resolved = False
        """Whether the name of the broker has been resolved."""
        self.awaited = ""
        """The step that the client awaits from a server that accepted its connection."""


class SetupRequests:
    """The requests that set up one connection. Each waits for its response."""

    def __init__(self, connection: BrokerConnection, client_id: str) -> None:
        self.connection = connection
        self.broker = connection.broker
        self.versions: Mapping[int, tuple[int, int]] = {}
        """The versions of each API that the broker supports, once it has answered ApiVersions."""
        self._pipeline = ClientPipeline(client_id)

    def choose_version(self, request: type[Request[Any]]) -> int:
        """Return the version in which a request is sent. Raises UnsupportedVersionError."""
        return negotiate(request, self.versions.get(request.api_key))

    async def request_response(self, request: Request[R], version: int) -> R:
        """Send a request, and return its response.

        Raises DisconnectedError if the broker closes the connection, and ProtocolError if the
        response is malformed.
        """
        time = asyncio.get_running_loop().time
        began = time()
        frame = await self.write_request(request, version)
        response: R = self._pipeline.match_response(frame).decode(frame)
        self.log_response(response, version, len(frame), time() - began)
        return response

    def write_request(self, request: Request[Any], version: int) -> asyncio.Future[Buffer]:
        """Send a request, and return a future of the frame of its response.

        The frame may have a secret, so no function that can raise an error has its segments in a
        local variable.
        """
        _, segments = self._pipeline.encode_request(request, version)
        api = request.api_key.api_name
        self.connection.traffic.log_request(self.broker, api, version, size_of(segments))
        return self.connection.exchange_frame(segments)

    def match_response(self, frame: Buffer) -> None:
        """Raise ProtocolError unless a frame is the response to the last request."""
        self._pipeline.match_response(frame)

    def log_response(self, response: Response, version: int, size: int, seconds: float) -> None:
        """Log a response in the wire log."""
        traffic = self.connection.traffic
        # The names of the errors are searched for in all structs of the response, of which
        # ApiVersions has over 50.
        if traffic.is_logged(DEBUG):
            api = response.api_key.api_name
            traffic.log_response(self.broker, api, version, size, seconds, response)


class ConnectionSetup:
    """One attempt to open a connection to a broker, at the addresses of its name.

    `progress` is updated while the attempt lasts.
    """

    def __init__(
        self,
        node_id: int,
        host: str,
        port: int,
        settings: ConnectionSettings,
        timeout_s: float,
        rung: int,
        progress: SetupProgress,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.settings = settings
        self.timeout_s = timeout_s
        self.rung = rung
        self.progress = progress
        self._context: ssl.SSLContext | None = None
        """The TLS context of the latest connection."""

    async def connect_address(self, address: Address) -> BrokerConnection:
        """Return a connection to an address. Leave none open if this raises or is cancelled."""
        settings = self.settings
        connection = BrokerConnection(
            self.node_id,
            self.host,
            self.port,
            client_id=settings.client_id,
            idle_s=settings.idle_s,
            traffic=settings.traffic,
        )
        try:
            await self._connect_transport(connection, address)
        except BaseException:
            self.progress.awaited = ""
            connection.abort()
            raise
        return connection

    async def set_up(self, connection: BrokerConnection, login: Login | None) -> None:
        """Set up a connection that has just been connected. Close it on any error."""
        settings = self.settings
        requests = SetupRequests(connection, settings.client_id)
        try:
            cluster, node_id = settings.cluster, connection.broker.node_id
            expected = None if cluster is None else cluster.expected_ids(node_id)
            features, checked = await self._negotiate_versions(requests, expected)
            lifetime_ms = 0
            if settings.sasl is not None and login is not None:
                lifetime_ms = await self._authenticate(requests, settings.sasl, login)
            elif settings.tls is not None:
                # As in Java's client, TLS without SASL counts as an authentication in the metrics.
                connection.traffic.count_authentication(None)
            if cluster is not None and not checked and cluster.is_in_doubt(node_id):
                await self._check_cluster(requests, cluster)
            connection.end_setup(
                requests.versions,
                settings.receive_max,
                features=features,
                session_lifetime_ms=lifetime_ms,
            )
            if connection.closed:
                raise DisconnectedError(
                    "The connection was closed.", broker=connection.broker.node_id
                )
        except BaseException:
            connection.abort()
            raise

    async def _authenticate(self, requests: SetupRequests, sasl: Sasl, login: Login) -> int:
        """Authenticate, and count the outcome."""
        from aiokclient.network.authentication import authenticate

        traffic = requests.connection.traffic
        try:
            lifetime_ms = await authenticate(requests, sasl, login, self.timeout_s, self.progress)
        except KafkaError as error:
            traffic.count_failed_authentication(again=False)
            sasl.on_outcome(login, error)
            raise
        sasl.on_outcome(login, None)
        traffic.count_authentication(None)
        return lifetime_ms

    async def _check_cluster(self, requests: SetupRequests, cluster: ClusterCheck) -> None:
        """Ask a broker for its cluster id. Raises the error of `ClusterCheck.compare_ids`."""
        version = requests.choose_version(MetadataRequest)
        # Metadata has the cluster id from version 2 on (KIP-78).
        if version < NAMES_CLUSTER:
            return
        broker, timeout_s = requests.broker, self.settings.request_s
        try:
            async with asyncio.timeout(timeout_s):
                response = await requests.request_response(MetadataRequest(topics=[]), version)
        except TimeoutError:
            text = f"{broker.address} did not say in which cluster it is within {timeout_s:.1f} s."
            raise diagnosis.SilentError(text, broker=broker.node_id) from None
        except DisconnectedError as error:
            text = f"{broker.address} closed the connection before it said in which cluster it is."
            raise DisconnectedError(text, api="Metadata", broker=broker.node_id) from error
        problem = cluster.compare_ids(broker.node_id, broker.address, response)
        if problem is not None:
            raise problem

    async def _connect_transport(self, connection: BrokerConnection, address: Address) -> None:
        broker = connection.broker
        contexts = self.settings.tls
        tls = None if contexts is None else await contexts.current_context()
        self._context = tls
        where = broker.address
        if address[0] != self.host:
            where += f" ({bracketed(address[0])})"
        is_accepted = False

        def made() -> BrokerConnection:
            nonlocal is_accepted
            if tls is not None:
                is_accepted = True
                self.progress.awaited = TLS_HANDSHAKE
            return connection

        try:
            async with asyncio.timeout(self.timeout_s) as patience:
                transport = await self.settings.connector.connect(
                    address, made, tls=tls, server_hostname=server_name(self.host)
                )
        # A plaintext port of Kafka takes the TLS handshake for a frame that is too large, and
        # closes.
        except (ConnectionResetError, ConnectionAbortedError) as error:
            raise diagnosis.closed_early(broker.address, tls is not None) from error
        except TimeoutError as error:
            # If the kernel's timeout has passed, and not the client's, the text names no time.
            within = f" within {self.timeout_s:.1f} s" if patience.expired() else ""
            if is_accepted:
                raise diagnosis.silent_handshake(broker.node_id, where, within) from error
            text = f"{where} did not accept a connection{within}."
            raise diagnosis.TimedOutError(text, broker=broker.node_id) from error
        except OSError as error:
            if is_end_of_tls(error):
                raise diagnosis.closed_early(broker.address, tls is not None) from error
            if is_tls_error(error):
                raise await self._explain_tls_failure(connection, error) from error
            # The text of asyncio repeats the address. The text of the errno does not.
            text = os.strerror(error.errno) if error.errno else str(error)
            shown = text if broker.address in text else f"{where}: {text}"
            raise diagnosis.NotConnectedError(f"{shown}.") from error
        except (OverflowError, ValueError) as error:
            # For example, TLS cannot verify the host name, which may contain any characters.
            raise diagnosis.unusable_address(broker.node_id, broker.address, str(error)) from error
        # The module ssl cannot limit the suites of TLS 1.3, so what was negotiated is compared.
        if contexts is not None and contexts.limits_suites:
            suite, version, _ = transport.get_extra_info("cipher") or ("unknown", "TLS", 0)
            if not contexts.allows_suite(suite):
                raise diagnosis.excluded_suite(broker.address, suite, version)

    async def _explain_tls_failure(
        self, connection: BrokerConnection, error: ssl.SSLError
    ) -> KafkaError:
        """Count a TLS handshake that failed, and return its error."""
        connection.traffic.count_failed_authentication(again=False)
        contexts, broker = self.settings.tls, connection.broker
        if contexts is None or self._context is None:
            return diagnosis.tls_failure(broker.address, error, None)
        failure = diagnosis.tls_failure(broker.address, error, contexts.has_certificate)
        if await contexts.is_outdated(self._context):
            return diagnosis.outdated_files(broker.node_id, failure)
        return failure

    async def _negotiate_versions(
        self, requests: SetupRequests, expected: Expected | None
    ) -> tuple[Mapping[str, int], bool]:
        """Ask for the versions of the APIs. Return the levels of the features.

        The second value tells whether the broker has confirmed the `expected` ids.
        """
        broker = requests.broker
        # Some servers close the connection at a version that they do not know, instead of
        # answering. The next attempt then begins with a lower one.
        version = RUNGS[self.rung % len(RUNGS)]
        for _ in RUNGS:
            response = await self._ask_versions(requests, version, expected)
            answer = _ANSWERS.get(response.error_code)
            spoken = {
                entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
            }
            if answer is _Answer.SETTLED:
                features = {
                    each.name: each.max_version_level for each in response.finalized_features
                }
                requests.versions = spoken
                return features, expected is not None and version >= CHECKED_FROM
            if answer is not _Answer.LOWER:
                error = error_for(response.error_code, api="ApiVersions", broker=broker.address)
                assert error is not None
                if answer is _Answer.ELSEWHERE:
                    raise diagnosis.wrong_broker(broker.node_id, broker.address) from error
                raise error
            if version == 0:
                break
            # Brokers from 2.4 on name the versions that they know (KIP-511). Older ones name none.
            known = spoken.get(ApiKey.API_VERSIONS)
            version = 0 if known is None else min(negotiate(ApiVersionsRequest, known), version - 1)
        raise UnsupportedVersionError(
            "The broker supports no version of ApiVersions that the client supports "
            f"({ApiVersionsRequest.min_version} to {ApiVersionsRequest.max_version}).",
            api="ApiVersions",
            broker=broker.address,
        )

    async def _ask_versions(
        self, requests: SetupRequests, version: int, expected: Expected | None
    ) -> ApiVersionsResponse:
        broker, request_s = requests.broker, self.settings.request_s
        time = asyncio.get_running_loop().time
        began = time()
        try:
            async with asyncio.timeout(request_s):
                frame = await requests.write_request(identifying_request(expected), version)
        except TimeoutError:
            raise diagnosis.SilentError(
                f"{broker.address} accepted the connection, but did not answer ApiVersions within "
                f"{request_s:.1f} s. Check that it is a Kafka broker.",
                broker=broker.node_id,
            ) from None
        except DisconnectedError as error:
            # In TLS 1.3, the server rejects a client certificate after the client's handshake.
            if is_tls_error(error.__cause__):
                cause = error.__cause__
                raise await self._explain_tls_failure(requests.connection, cause) from error
            raise diagnosis.closed_early(broker.address, tls=False) from error
        try:
            requests.match_response(frame)
            # The response may have another version than the request.
            (code,) = _ERROR_CODE.unpack_from(frame, 4)
            if _ANSWERS.get(code) is _Answer.LOWER:
                response = _refusal(bytes(frame[4:]), code)
            else:
                response = ApiVersionsResponse.decode(frame[4:], version)
        except (ProtocolError, StructError) as error:
            raise diagnosis.not_kafka(broker.address, bytes(frame[:16])) from error
        requests.log_response(response, version, len(frame), time() - began)
        return response


async def open_connection(
    node_id: int,
    host: str,
    port: int,
    settings: ConnectionSettings,
    *,
    timeout_s: float,
    rung: int,
    examine: bool = True,
    progress: SetupProgress | None = None,
) -> BrokerConnection:
    """Return a connection on which requests may be sent.

    The addresses of the host race, see `AddressRace`. If one is connected and turns out to be
    unusable, the others follow. Connecting to each address takes at most `timeout_s` seconds,
    including TLS. The authentication takes at most as long again, and each other request takes at
    most the request timeout. `progress` tells what the client awaits. With `examine`, the client
    checks which protocol a bootstrap server speaks that closes a connection early.

    Raises UnresolvedError if the name cannot be resolved, NotConnectedError if no address could be
    connected, DisconnectedError if a connected broker did not respond, TokenProviderError if there
    is no token with which to log in, AuthenticationError if the broker does not accept the client,
    ConnectionSetupError if the server does not speak the configured protocol, WrongBrokerError if
    the server is another broker than intended, and UnsupportedVersionError if there is no common
    version. A cancellation closes the connection.
    """
    host = bare(host)
    name = written((host, port))
    if not 0 < port <= HIGHEST_PORT:
        raise diagnosis.unusable_address(node_id, name, "the port must be from 1 to 65535")
    progress = SetupProgress() if progress is None else progress
    addresses = await resolve(settings.connector, host, port, timeout_s)
    progress.is_resolved = True
    sasl = settings.sasl
    # A token provider may take long, so it is called before there is a connection that waits.
    login = None if sasl is None else await sasl.prepare_login(host, timeout_s)
    setup = ConnectionSetup(node_id, host, port, settings, timeout_s, rung, progress)
    race = AddressRace(addresses, setup)
    while (won := await race.find_winner()) is not None:
        address, connection = won
        progress.awaited = "ApiVersions"
        try:
            await setup.set_up(connection, login)
        except DisconnectedError as error:
            race.mark_failed(address, error)
        else:
            return connection
    closed = race.find_early_closer()
    # The address of a bootstrap server may be wrong, so the client checks which protocol the port
    # speaks. A broker from the metadata, or one that has answered before, is just unreachable.
    if closed is not None and node_id < 0 and examine:
        address, cause = closed
        from aiokclient.network.probe import find_mismatch

        tls = settings.tls is not None
        mismatch = await find_mismatch(
            settings.connector, address, name, tls=tls, timeout_s=timeout_s
        )
        if mismatch is not None:
            raise mismatch from cause
    raise race.make_failure(name, node_id)


def _refusal(body: bytes, code: int) -> ApiVersionsResponse:
    """Decode the response to an unsupported version, which has the format of version 0.

    Not all brokers comply with that. If the body cannot be decoded, the error code suffices.
    """
    try:
        return ApiVersionsResponse.decode(body, 0)
    except ProtocolError:
        return ApiVersionsResponse(error_code=code)
