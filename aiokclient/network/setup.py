"""From an address to a connection that is ready: resolve, connect, TLS, ApiVersions, SASL.

The first request on a connection asks which versions the broker speaks, in a version of its own
that the broker may not know. A broker that does not know it answers in the form of version 0 with
UNSUPPORTED_VERSION, and (KIP-511) names the versions of that request that it does speak; the next
try is the highest common one, then version 0. A very old one just closes the connection: the next
connection begins one rung lower. Connecting and the handshake of TLS are bounded by the setup
timeout, which grows with failures to connect, and so is the authentication. Each other request is
bounded by the request timeout, and the number of tries by the rungs.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from struct import error as StructError

import aiokclient.network.diagnosis as diagnosis
from aiokclient.errors import (
    DisconnectedError,
    ProtocolError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.authentication import authenticate
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.probe import find_mismatch
from aiokclient.network.sasl import Sasl
from aiokclient.network.traffic import Traffic, size_of
from aiokclient.network.transport import Address, Connector, TcpConnector
from aiokclient.protocol.api import ApiKey, negotiate
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

__all__ = ["RUNGS", "ConnectionSettings", "open_connection"]

RUNGS = (ApiVersionsRequest.max_version, 3, 0)
"""The versions of ApiVersions with which successive connections begin."""

HIGHEST_PORT = 65535

SOFTWARE_NAME = "aiokclient"
SOFTWARE_VERSION = "0.1.0"

_ANSWER = Struct(">ih")


class _Answer(Enum):
    SETTLED = 1
    LOWER = 2


_ANSWERS = {0: _Answer.SETTLED, UnsupportedVersionError.code: _Answer.LOWER}
"""What an answer to ApiVersions means, by its error code; any other fails the connection."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings of all connections of a client; times in seconds, sizes in bytes."""

    connector: Connector
    client_id: str
    tls: ssl.SSLContext | None
    receive_max: int
    idle_s: float | None
    traffic: Traffic | None = None
    group_id: str | None = None
    request_s: float = 30.0
    """Seconds until a request that sets up a connection times out."""
    sasl: Sasl | None = None


async def open_connection(
    node_id: int, host: str, port: int, settings: ConnectionSettings, *, timeout_s: float, rung: int
) -> BrokerConnection:
    """Return a connection on which requests may be sent.

    Every address of the host is tried in turn. Connecting to each may take `timeout_s` seconds,
    TLS included, the authentication as long again, and each other request the request timeout.
    Raises NotConnectedError when none of them could be connected, DisconnectedError when one that
    was did not answer, AuthenticationError when the broker does not accept the client,
    ConnectionSetupError when what is there does not speak what it should, UnsupportedVersionError
    when it shares no version. Cancelling it closes the connection.
    """
    if not 0 < port <= HIGHEST_PORT:
        raise diagnosis.unusable_address(
            node_id, f"{host}:{port}", "the port is not from 1 to 65535"
        )
    failures: list[DisconnectedError] = []
    for address in await _resolve(host, port, settings, timeout_s):
        connection = BrokerConnection(
            node_id,
            host,
            port,
            client_id=settings.client_id,
            idle_s=settings.idle_s,
            traffic=settings.traffic,
        )
        try:
            await _open(connection, address, settings, timeout_s, rung)
        except DisconnectedError as error:
            failures.append(error)
        else:
            return connection
    if len(failures) == 1:
        raise failures[0]
    texts = " ".join(dict.fromkeys(failure.message for failure in failures))
    raise type(failures[-1])(texts, broker=node_id)


async def _open(
    connection: BrokerConnection,
    address: Address,
    settings: ConnectionSettings,
    timeout_s: float,
    rung: int,
) -> None:
    try:
        await _connect(connection, address, settings, timeout_s)
        pipeline = ClientPipeline(settings.client_id)
        versions = await _negotiate(connection, pipeline, rung, settings.request_s)
        if settings.sasl is not None:
            await authenticate(connection, pipeline, versions, settings.sasl, timeout_s)
        connection.ready(versions, settings.receive_max)
        if connection.closed:
            raise DisconnectedError("The connection was closed.", broker=connection.node_id)
    except diagnosis.ClosedEarlyError as error:
        # A bootstrap server may be misconfigured; a broker that the cluster names is just gone.
        if connection.node_id < 0:
            mismatch = await find_mismatch(
                settings.connector,
                address,
                connection.place,
                tls=settings.tls is not None,
                timeout_s=timeout_s,
            )
            if mismatch is not None:
                raise mismatch from error
        raise
    except BaseException:
        connection.abort()
        raise


async def _resolve(
    host: str, port: int, settings: ConnectionSettings, timeout_s: float
) -> list[Address]:
    place = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await settings.connector.resolve(host, port)
    except TimeoutError:
        queued = isinstance(settings.connector, TcpConnector) and settings.connector.queued(host)
        why = " because no thread was free for it" if queued else ""
        raise DisconnectedError(f"Resolving {place} took over {timeout_s:.1f} s{why}.") from None
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        raise DisconnectedError(f"The name {host} cannot be resolved ({text}).") from error
    if not addresses:
        raise DisconnectedError(f"The name {host} has no address.")
    return addresses


async def _connect(
    connection: BrokerConnection, address: Address, settings: ConnectionSettings, timeout_s: float
) -> None:
    place, tls = connection.place, settings.tls
    try:
        async with asyncio.timeout(timeout_s) as patience:
            await settings.connector.connect(
                address, lambda: connection, tls=tls, server_hostname=connection.host
            )
    except (ConnectionResetError, ConnectionAbortedError, ssl.SSLEOFError) as error:
        raise diagnosis.closed_early(place, tls is not None) from error
    except ssl.SSLError as error:
        raise diagnosis.tls_failure(place, error) from error
    except TimeoutError as error:
        # That of the kernel may come before our own.
        within = f" within {timeout_s:.1f} s" if patience.expired() else ""
        text = f"{place} ({address[0]}) did not accept a connection{within}."
        raise diagnosis.NotConnectedError(text, broker=connection.node_id) from error
    except OSError as error:
        # asyncio's own text repeats the address; the errno says it better.
        text = os.strerror(error.errno) if error.errno else str(error)
        raise diagnosis.NotConnectedError(f"{place} ({address[0]}): {text}.") from error
    except (OverflowError, ValueError) as error:
        # A host that TLS cannot verify, for example: the name may be anything.
        raise diagnosis.unusable_address(connection.node_id, place, str(error)) from error


async def _negotiate(
    connection: BrokerConnection, pipeline: ClientPipeline, rung: int, request_s: float
) -> Mapping[int, tuple[int, int]]:
    version = RUNGS[rung % len(RUNGS)]
    for _ in RUNGS:
        response = await _ask(connection, pipeline, version, request_s)
        answer = _ANSWERS.get(response.error_code)
        spoken = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys
        }
        if answer is _Answer.SETTLED:
            connection.features = {
                feature.name: feature.max_version_level for feature in response.finalized_features
            }
            return spoken
        if answer is None:
            error = error_for(response.error_code, api="ApiVersions", broker=connection.place)
            assert error is not None
            raise error
        if version == 0:
            break
        known = spoken.get(ApiKey.API_VERSIONS)
        version = 0 if known is None else min(negotiate(ApiVersionsRequest, known), version - 1)
    raise UnsupportedVersionError(
        f"{connection.place} refuses ApiVersions in every version that this client speaks, "
        f"{ApiVersionsRequest.min_version} to {ApiVersionsRequest.max_version}.",
        api="ApiVersions",
        broker=connection.place,
    )


def _refusal(body: bytes, code: int) -> ApiVersionsResponse:
    """Decode the response to an unsupported version, which has the form of version 0.

    Not all brokers keep to that. Where nothing can be read the code alone says enough.
    """
    try:
        return ApiVersionsResponse.decode(body, 0)
    except ProtocolError:
        return ApiVersionsResponse(error_code=code)


async def _ask(
    connection: BrokerConnection, pipeline: ClientPipeline, version: int, request_s: float
) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
    )
    # A pipeline reads an answer in the form of the request; this one may be in another.
    correlation_id, segments = pipeline.send(request, version, expect_response=False)
    traffic, api, time = connection.traffic, "ApiVersions", asyncio.get_running_loop().time
    traffic.log_request(connection, api, version, size_of(segments))
    began = time()
    try:
        async with asyncio.timeout(request_s):
            frame = await connection.exchange(segments)
    except TimeoutError:
        raise DisconnectedError(
            f"{connection.place} accepted the connection, but did not answer ApiVersions within "
            f"{request_s:.1f} s.",
            broker=connection.node_id,
        ) from None
    except DisconnectedError as error:
        # In TLS 1.3 a client's certificate is refused when its side of the handshake is over.
        if isinstance(error.__cause__, ssl.SSLError):
            raise diagnosis.tls_failure(connection.place, error.__cause__) from error
        raise diagnosis.closed_early(connection.place, tls=False) from error
    try:
        answered, code = _ANSWER.unpack_from(frame)
        if answered != correlation_id:
            raise ProtocolError(
                f"A response to request {answered} came instead of {correlation_id}."
            )
        if _ANSWERS.get(code) is _Answer.LOWER:
            response = _refusal(bytes(frame[4:]), code)
        else:
            response = ApiVersionsResponse.decode(frame[4:], version)
        traffic.log_response(connection, api, version, len(frame), time() - began, response)
        return response
    except (ProtocolError, StructError) as error:
        raise diagnosis.not_kafka(connection.place, bytes(frame[:16])) from error
