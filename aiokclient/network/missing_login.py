"""The advice about a broker that closes each connection without an answer, as one with SASL does.

A broker that requires a login answers ApiVersions, and closes the connection at any other request.
A broker that stops, a proxy, and the network do that as well, and some brokers name SASL mechanisms
although they do not require a login. So the advice is only a text beside the error. Only what a
broker says in an answer is a reason to give up.
"""

from __future__ import annotations

import asyncio

import aiokclient.network.diagnosis as diagnosis
from aiokclient.config.kinds import written
from aiokclient.errors import KafkaError
from aiokclient.network.setup import ConnectionSettings, open_connection
from aiokclient.protocol.messages.sasl_handshake import SaslHandshakeRequest

__all__ = ["advise_login"]

HANDSHAKE_VERSION = 1
KNOWN_ID = 0
"""The id of the connection's broker. A negative one would let the setup examine the port again."""

ASKING_S = 3.0
"""The time limit in seconds, so that the advice does not delay the error for long."""


async def advise_login(host: str, port: int, settings: ConnectionSettings, rung: int) -> str:
    """Return advice about a broker that has closed a connection without an answer.

    The broker is asked for its mechanisms on a connection of its own. Returns an empty text if it
    names none, and general advice if it does not answer. Raises no error but cancellations.
    """
    tls = settings.tls is not None
    address = written((host, port))
    try:
        async with asyncio.timeout(ASKING_S):
            mechanisms = await _mechanisms(host, port, settings, rung)
    except (KafkaError, TimeoutError):
        return diagnosis.missing_login(address, (), tls=tls)
    return diagnosis.missing_login(address, mechanisms, tls=tls) if mechanisms else ""


async def _mechanisms(host: str, port: int, settings: ConnectionSettings, rung: int) -> list[str]:
    """Return the SASL mechanisms that a listener offers: an empty list if it does not use SASL."""
    settings = settings._replace(cluster=None, events=None, traffic=None)
    connection = await open_connection(
        KNOWN_ID, host, port, settings, timeout_s=ASKING_S, rung=rung
    )
    try:
        request = SaslHandshakeRequest(mechanism="")
        response = await connection.send(request, version=HANDSHAKE_VERSION, timeout_s=ASKING_S)
    finally:
        connection.abort()
        await connection.wait_closed()
    mechanisms: list[str] = response.mechanisms
    return mechanisms
