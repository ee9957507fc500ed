"""The diagnosis of a port that closed the connection before it sent anything.

Many servers close a connection when the client uses the wrong protocol, but a broker that is
shutting down does that, too. To distinguish the two, the client connects once more with the other
protocol: TLS instead of plaintext, or the reverse. It sends only ApiVersions, with which every
connection begins.
"""

from __future__ import annotations

import asyncio
import ssl

import aiokclient.network.diagnosis as diagnosis
from aiokclient.errors import ConnectionSetupError, KafkaError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.transport import Address, Connector
from aiokclient.protocol.framing import ClientPipeline
from aiokclient.protocol.messages.api_versions import ApiVersionsRequest

__all__ = ["find_mismatch"]


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
        _, segments = ClientPipeline(None).send(ApiVersionsRequest(), 0)
        await connection.exchange(segments)
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
