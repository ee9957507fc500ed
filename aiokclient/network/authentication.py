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
) -> int:
    """Authenticate the client to the broker, in at most `timeout_s` seconds.

    Return the time in milliseconds for which the broker accepts that, or 0 for no limit. Raises
    the broker's error (SaslAuthenticationError, UnsupportedSaslMechanismError, or
    IllegalSaslStateError), UnsupportedVersionError if the broker is too old, NotConnectedError at
    the deadline, and DisconnectedError if the broker closes the connection. The connection cannot
    be used after an error or a cancellation.
    """
    broker = connection.broker
    try:
        mechanism = MECHANISMS[sasl.mechanism](sasl.credentials)
    except KeyError:
        raise ConfigError(f"The SASL mechanism {sasl.mechanism!r} is not supported.") from None
    try:
        async with asyncio.timeout(timeout_s):
            await _choose(connection, pipeline, versions, sasl.mechanism)
            return await _converse(connection, pipeline, versions, mechanism)
    except TimeoutError:
        raise NotConnectedError(
            f"{broker.address} did not complete the SASL authentication within {timeout_s:.1f} s.",
            broker=broker.node_id,
        ) from None


async def _choose(
    connection: BrokerConnection, pipeline: ClientPipeline, versions: Versions, mechanism: str
) -> None:
    broker = connection.broker
    spoken = versions.get(ApiKey.SASL_HANDSHAKE)
    if negotiate(SaslHandshakeRequest, spoken) < HANDSHAKE_VERSION:
        raise UnsupportedVersionError(
            f"{broker.address} is older than Kafka 1.0, which this client needs for SASL.",
            api="SaslHandshake",
            broker=broker.node_id,
        )
    request = SaslHandshakeRequest(mechanism=mechanism)
    response = await _ask(connection, pipeline, request, HANDSHAKE_VERSION)
    offered = ", ".join(response.mechanisms)
    error = error_for(
        response.error_code,
        f"The client uses {mechanism}, but the broker offers {offered}." if offered else "",
        api="SaslHandshake",
        broker=broker.node_id,
    )
    if error is not None:
        raise error


async def _converse(
    connection: BrokerConnection,
    pipeline: ClientPipeline,
    versions: Versions,
    mechanism: Mechanism,
) -> int:
    broker = connection.broker
    version = negotiate(SaslAuthenticateRequest, versions.get(ApiKey.SASL_AUTHENTICATE))
    lifetime_ms, message = 0, mechanism.step(b"")
    for _ in range(MOST_STEPS):
        if message is None:
            return lifetime_ms
        request = SaslAuthenticateRequest(auth_bytes=message)
        response = await _ask(connection, pipeline, request, version)
        error = error_for(
            response.error_code,
            response.error_message or "",
            api="SaslAuthenticate",
            broker=broker.node_id,
        )
        if error is not None:
            raise error
        lifetime_ms = response.session_lifetime_ms
        message = mechanism.step(response.auth_bytes)
    raise SaslAuthenticationError(
        f"{broker.address} did not complete the authentication after {MOST_STEPS} messages.",
        broker=broker.node_id,
    )


async def _ask(
    connection: BrokerConnection, pipeline: ClientPipeline, request: Request[R], version: int
) -> R:
    broker = connection.broker
    _, segments = pipeline.send(request, version)
    api = type(request).__name__.removesuffix("Request")
    traffic, time = connection.traffic, asyncio.get_running_loop().time
    traffic.log_request(broker, api, version, size_of(segments))
    began = time()
    try:
        frame = await connection.exchange(segments)
    except DisconnectedError as error:
        raise DisconnectedError(
            f"{broker.address} closed the connection during the SASL authentication. Check that "
            "its listener expects SASL, and check the client's credentials.",
            api=api,
            broker=broker.node_id,
        ) from error
    response: R = pipeline.match(frame).decode(frame)
    traffic.log_response(broker, api, version, len(frame), time() - began, response)
    return response
