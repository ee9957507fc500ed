"""Authentication by SASL: the step of setting up a connection between ApiVersions and ready.

SaslHandshake names the mechanism, then SaslAuthenticate carries its messages (KIP-152). All steps
share one deadline. A broker that rejects the client closes the connection, with or without sending
an error response before.

A broker may limit the time for which it accepts an authentication. The client then repeats it on
the same connection before that time is over (KIP-368). The broker answers the requests that were
sent before. Between SaslHandshake and the end of the authentication, it expects nothing but
SaslAuthenticate. So the connection holds all other requests in the meantime
(`BrokerConnection.hold_requests`). If the broker reads a request only after the session has ended,
it closes the connection. The request is then sent again, like any request whose connection is lost.

A message to the broker may contain a password or a token. No function that can raise an error has
such a secret in a local variable, because tracebacks would show it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from typing import Protocol, TypeVar

import aiokclient.network.diagnosis as diagnosis
from aiokclient import threads
from aiokclient.errors import (
    ConfigError,
    DisconnectedError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
    UnsupportedVersionError,
    error_for,
)
from aiokclient.log.texts import bounded
from aiokclient.network.connection import BrokerConnection, ConnectedBroker
from aiokclient.network.login import Sasl
from aiokclient.network.sasl import (
    MAX_CHALLENGE,
    MECHANISMS,
    ChallengeError,
    Login,
    Mechanism,
    Thread,
)
from aiokclient.network.setup import SetupProgress, SetupRequests
from aiokclient.protocol.api import ApiKey, negotiate
from aiokclient.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokclient.protocol.messages.sasl_handshake import SaslHandshakeRequest
from aiokclient.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

HANDSHAKE_VERSION = 1
"""The lowest SaslHandshake version after which SaslAuthenticate carries the messages."""

MOST_STEPS = 16
"""The maximum number of messages of an authentication. It is more than any mechanism needs."""

Versions = Mapping[int, tuple[int, int]]


class Ask(Protocol):
    """A function that sends a request in a version, and returns the response."""

    def __call__(self, request: Request[R], version: int, /) -> Awaitable[R]: ...


async def authenticate(
    requests: SetupRequests,
    sasl: Sasl,
    login: Login,
    timeout_s: float,
    progress: SetupProgress,
) -> int:
    """Authenticate the client to the broker, in at most `timeout_s` seconds.

    `progress` tells which response is awaited. Return the lifetime of the session in milliseconds,
    or 0 for no limit. Raises the broker's error (SaslAuthenticationError,
    UnsupportedSaslMechanismError, or IllegalSaslStateError),
    UnsupportedVersionError if the broker is too old, NotConnectedError at the deadline, and
    DisconnectedError if the broker closes the connection. The connection cannot be used after an
    error or a cancellation.
    """
    step, numbers = "", itertools.count()

    async def ask(request: Request[R], version: int, /) -> R:
        nonlocal step
        number = next(numbers)
        message = f", message {number} of {sasl.mechanism}" if number else f" for {sasl.mechanism}"
        step = f"{request.api_key.api_name}{message}"
        progress.awaited = f"the SASL authentication ({step})"
        return await _ask(requests, request, version)

    broker = requests.broker
    try:
        async with asyncio.timeout(timeout_s):
            return await _converse(ask, broker, requests.versions, sasl, login)
    except TimeoutError:
        raise diagnosis.NotConnectedError(
            f"{broker.address} accepted the connection, but did not complete the SASL "
            f"authentication within {timeout_s:.1f} s. It has not answered {step}.",
            broker=broker.node_id,
        ) from None


async def authenticate_again(
    connection: BrokerConnection, sasl: Sasl, login: Login, timeout_s: float
) -> None:
    """Repeat the authentication of an open connection, amid its other requests.

    Each response may take `timeout_s` seconds after the responses to earlier requests. If the
    authentication fails, the connection is closed with the error as the reason. A cancellation
    closes the connection, too.
    """

    async def ask(request: Request[R], version: int, /) -> R:
        response: R = await connection.send_first(request, version=version, timeout_s=timeout_s)
        return response

    broker = connection.broker
    # Amid the authentication, brokers close the connection at any other request (KIP-368).
    connection.hold_requests()
    try:
        lifetime_ms = await _converse(ask, broker, broker.api_versions, sasl, login)
    except KafkaError as error:
        sasl.on_outcome(login, error)
        connection.close(error)
    except BaseException:
        connection.abort()
        raise
    else:
        sasl.on_outcome(login, None)
        broker.renew_session(lifetime_ms)
        connection.release_requests()


async def _converse(
    ask: Ask, broker: ConnectedBroker, versions: Versions, sasl: Sasl, login: Login
) -> int:
    make = MECHANISMS.get(sasl.mechanism)
    if make is None:
        raise ConfigError(f"The SASL mechanism {sasl.mechanism!r} is not supported.")
    mechanism = make(login)
    await _choose(ask, broker, versions, sasl)
    # From SaslAuthenticate 1 on, the response has the lifetime of the session (KIP-368).
    version = negotiate(SaslAuthenticateRequest, versions.get(ApiKey.SASL_AUTHENTICATE))
    lifetime_ms, request = 0, await _next(mechanism, b"", broker, sasl)
    for _ in range(MOST_STEPS):
        if request is None:
            return lifetime_ms
        response = await ask(request, version)
        error = _refusal(response.error_code, response.error_message, broker, sasl, login)
        if error is not None:
            del response  # A careless broker may have put the secret into the error text.
            raise error
        lifetime_ms = response.session_lifetime_ms
        request = await _next(mechanism, response.auth_bytes, broker, sasl)
    raise SaslAuthenticationError(
        f"{broker.address} did not complete the login with the mechanism {sasl.mechanism} after "
        f"{MOST_STEPS} messages.",
        api="SaslAuthenticate",
        broker=broker.node_id,
    )


async def _next(
    mechanism: Mechanism, challenge: bytes, broker: ConnectedBroker, sasl: Sasl
) -> SaslAuthenticateRequest | None:
    """Return the request with the mechanism's next message; None if there is no further message."""
    try:
        if len(challenge) > MAX_CHALLENGE:
            raise ChallengeError(
                f"The broker sent a SASL message of {len(challenge)} bytes. The client accepts at "
                f"most {MAX_CHALLENGE}."
            )
        if mechanism.thread is None:
            return _answer(mechanism, challenge)
        run = threads.run if mechanism.thread is Thread.COMPUTING else threads.run_blocking
        return await run(_answer, mechanism, challenge)
    except ChallengeError as error:
        error.api, error.broker = "SaslAuthenticate", broker.node_id
        error.message = (
            f"{broker.address} did not complete the login with the mechanism {sasl.mechanism}. "
            f"{error.message}"
        )
        raise


def _answer(mechanism: Mechanism, challenge: bytes) -> SaslAuthenticateRequest | None:
    # The repr of a task shows the result of the thread for which it waits. That of a request shows
    # no bytes.
    message = mechanism.answer_challenge(challenge)
    return None if message is None else SaslAuthenticateRequest(auth_bytes=message)


async def _choose(ask: Ask, broker: ConnectedBroker, versions: Versions, sasl: Sasl) -> None:
    spoken = versions.get(ApiKey.SASL_HANDSHAKE)
    # After SaslHandshake 0, the mechanism's messages have no headers, so that the broker can refuse
    # a login only by closing the connection (KIP-152).
    if negotiate(SaslHandshakeRequest, spoken) < HANDSHAKE_VERSION:
        raise UnsupportedVersionError(
            f"{broker.address} is older than Kafka 1.0, which this client needs for SASL.",
            api="SaslHandshake",
            broker=broker.node_id,
        )
    response = await ask(SaslHandshakeRequest(mechanism=sasl.mechanism), HANDSHAKE_VERSION)
    offered = bounded(", ".join(response.mechanisms))
    error = error_for(
        response.error_code,
        f"The client uses {sasl.mechanism}, but {broker.address} offers {offered}."
        if offered
        else diagnosis.without_sasl(broker.address, tls=sasl.encrypted),
        api="SaslHandshake",
        broker=broker.node_id,
    )
    if error is not None:
        raise error


def _refusal(
    code: int, text: str | None, broker: ConnectedBroker, sasl: Sasl, login: Login
) -> KafkaError | None:
    """Return the error for a login that the broker refuses, or None for the code 0."""
    user = sasl.user_of(login)
    whose = f"the user {user!r}" if user else "the client"
    said = bounded(sasl.scrub_text(text or "", login).strip())
    return error_for(
        code,
        f"{broker.address} refused {whose} with the mechanism {sasl.mechanism}"
        f"{f': {said}' if said else '.'}",
        api="SaslAuthenticate",
        broker=broker.node_id,
        resource=user,
    )


async def _ask(requests: SetupRequests, request: Request[R], version: int) -> R:
    broker, api = requests.broker, request.api_key.api_name
    try:
        return await requests.request_response(request, version)
    except DisconnectedError as error:
        raise DisconnectedError(
            f"{broker.address} closed the connection during the SASL authentication. Check that "
            "its listener expects SASL, and check the client's credentials.",
            api=api,
            broker=broker.node_id,
        ) from error
    except ProtocolError as error:
        error.api, error.broker = api, broker.node_id
        error.message = f"{broker.address} sent a malformed SASL response. {error.message}"
        raise
