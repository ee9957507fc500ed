"""Authentication by SASL: the step of setting up a connection between ApiVersions and ready.

SaslHandshake names the mechanism, then SaslAuthenticate carries its messages (KIP-152). All steps
share one deadline. A broker that rejects the client closes the connection, with or without sending
an error response before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from aiokclient.errors import (
    ConfigError,
    DisconnectedError,
    SaslAuthenticationError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.diagnosis import NotConnectedError
from aiokclient.network.sasl import MECHANISMS, Mechanism, Sasl
from aiokclient.network.traffic import size_of
from aiokclient.protocol.api import ApiKey, negotiate
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aiokclient.protocol.schema import Request, Response

__all__ = ["authenticate"]

R = TypeVar("R", bound=Response)

HANDSHAKE_VERSION = 1
"""The lowest SaslHandshake version after which SaslAuthenticate carries the messages."""

MOST_STEPS = 16
"""The maximum number of messages, more than any mechanism needs, so that it always ends."""

Versions = Mapping[int, tuple[int, int]]


async def authenticate(
    connection: BrokerConnection,
    pipeline: ClientPipeline,
    versions: Versions,
    sasl: Sasl,
    timeout_s: float,
) -> None:
    """Authenticate the client to the broker, in at most `timeout_s` seconds.

    Raises the broker's error (SaslAuthenticationError, UnsupportedSaslMechanismError, or
    IllegalSaslStateError), UnsupportedVersionError if the broker is too old, NotConnectedError at
    the deadline, and DisconnectedError if the broker closes the connection. The connection cannot
    be used after an error or a cancellation.
    """
    try:
        mechanism = MECHANISMS[sasl.mechanism](sasl.credentials)
    except KeyError:
        raise ConfigError(f"This client has no SASL mechanism {sasl.mechanism!r}.") from None
    try:
        async with asyncio.timeout(timeout_s):
            await _choose(connection, pipeline, versions, sasl.mechanism)
            await _converse(connection, pipeline, versions, mechanism)
    except TimeoutError:
        raise NotConnectedError(
            f"{connection.place} did not end the SASL authentication within {timeout_s:.1f} s.",
            broker=connection.node_id,
        ) from None


async def _choose(
    connection: BrokerConnection, pipeline: ClientPipeline, versions: Versions, mechanism: str
) -> None:
    spoken = versions.get(ApiKey.SASL_HANDSHAKE)
    if negotiate(SaslHandshakeRequest, spoken) < HANDSHAKE_VERSION:
        raise UnsupportedVersionError(
            f"{connection.place} is older than Kafka 1.0, which this client needs for SASL.",
            api="SaslHandshake",
            broker=connection.node_id,
        )
    request = SaslHandshakeRequest(mechanism=mechanism)
    response = await _ask(connection, pipeline, request, HANDSHAKE_VERSION)
    offered = ", ".join(response.mechanisms)
    error = error_for(
        response.error_code,
        f"The client uses {mechanism}, the broker offers {offered}." if offered else "",
        api="SaslHandshake",
        broker=connection.node_id,
    )
    if error is not None:
        raise error


async def _converse(
    connection: BrokerConnection,
    pipeline: ClientPipeline,
    versions: Versions,
    mechanism: Mechanism,
) -> None:
    version = negotiate(SaslAuthenticateRequest, versions.get(ApiKey.SASL_AUTHENTICATE))
    message = mechanism.step(b"")
    for _ in range(MOST_STEPS):
        if message is None:
            return
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = await _ask(connection, pipeline, request, version)
        error = error_for(
            response.error_code,
            response.error_message or "",
            api="SaslAuthenticate",
            broker=connection.node_id,
        )
        if error is not None:
            raise error
        connection.session_lifetime_ms = response.session_lifetime_ms
        message = mechanism.step(response.auth_bytes)
    raise SaslAuthenticationError(
        f"{connection.place} did not end the authentication after {MOST_STEPS} messages.",
        broker=connection.node_id,
    )


async def _ask(
    connection: BrokerConnection, pipeline: ClientPipeline, request: Request[R], version: int
) -> R:
    _, segments = pipeline.send(request, version)
    api = type(request).__name__.removesuffix("Request")
    traffic, time = connection.traffic, asyncio.get_running_loop().time
    traffic.log_request(connection, api, version, size_of(segments))
    began = time()
    try:
        frame = await connection.exchange(segments)
    except DisconnectedError as error:
        raise DisconnectedError(
            f"{connection.place} closed the connection during the SASL authentication. Check that "
            "its listener expects SASL, and the credentials of the client.",
            api=api,
            broker=connection.node_id,
        ) from error
    response: R = pipeline.match(frame).decode(frame)
    traffic.log_response(connection, api, version, len(frame), time() - began, response)
    return response
