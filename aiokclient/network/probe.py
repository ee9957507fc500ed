"""The answer of a server on a connection that is made only to explain the failure of others.

Many servers close a connection when the client uses the wrong protocol, but a broker that is
shutting down does that, too. To distinguish the two, `find_mismatch` connects once more with the
other protocol: TLS instead of plaintext, or the reverse. It sends only ApiVersions, with which
every connection begins.

A broker that requires a login answers ApiVersions, and closes the connection at any other request.
A broker that stops, a proxy, and the network do that as well, and some brokers name SASL mechanisms
although they do not require a login. So the advice of `advise_login` is only a text beside the
error. Only what a broker says in an answer is a reason to give up.
"""

from __future__ import annotations

import asyncio
import ssl

import aiokclient.network.diagnosis as diagnosis
from aiokclient.config.kinds import written
from aiokclient.errors import ConnectionSetupError, KafkaError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.setup import ConnectionSettings, open_connection
from aiokclient.network.transport import Address, Connector
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest
from aiokclient.protocol.messages.sasl_handshake import SaslHandshakeRequest


async def find_mismatch(
    connector: Connector, endpoint: Address, address: str, *, tls: bool, timeout_s: float
) -> ConnectionSetupError | None:
    """Return an error if the port expects TLS where plaintext was used, or the reverse."""
    speaks = _speaks_plaintext if tls else _speaks_tls
    try:
        async with asyncio.timeout(timeout_s):
            found = await speaks(connector, endpoint)
    except (OSError, TimeoutError, KafkaError):
        return None
    if not found:
        return None
    return diagnosis.plaintext_port(address) if tls else diagnosis.tls_port(address)


async def _speaks_plaintext(connector: Connector, address: Address) -> bool:
    connection = BrokerConnection(-1, *address, client_id="")
    try:
        await connector.connect(address, lambda: connection, tls=None, server_hostname=None)
        _, segments = ClientPipeline(None).encode_request(ApiVersionsRequest(), 0)
        await connection.exchange_frame(segments)
    finally:
        connection.abort()
    return True


async def _speaks_tls(connector: Connector, address: Address) -> bool:
    # The certificate need not be verified: nothing is sent over this connection.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    connection = BrokerConnection(-1, *address, client_id="")
    try:
        transport = await connector.connect(
            address, lambda: connection, tls=tls, server_hostname=None
        )
        return transport.get_extra_info("ssl_object") is not None
    except ssl.SSLError as error:
        # An alert shows that the server speaks TLS. No other error shows that.
        return "ALERT" in (error.reason or "")
    finally:
        connection.abort()


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
