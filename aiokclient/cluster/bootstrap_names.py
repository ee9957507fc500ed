"""The bootstrap servers of a client, according to `client_dns_lookup`."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from aiokclient import threads

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokclient.config import ClientConfig
    from aiokclient.network.transport import Address, Connector
    from aiokclient.policy import Retry

__all__ = ["servers_of"]


async def servers_of(
    config: ClientConfig, connector: Connector, lookup_s: float, retry: Retry
) -> list[tuple[str, int]]:
    """Return the names and ports of the bootstrap servers, according to `client_dns_lookup`.

    With `resolve_canonical_bootstrap_servers_only` each address of a name becomes a server, under
    its canonical name. All names are looked up at the same time, for at most `lookup_s` seconds.
    If every lookup fails, they are repeated until the deadline of `retry`. A name that cannot be
    resolved by then remains in the list unchanged.
    """
    given = config.bootstrap_servers
    if config.client_dns_lookup == "use_all_dns_ips":
        return list(given)
    while True:
        servers, failed = await _look_up(given, connector, lookup_s)
        if not failed or retry.remaining_s <= 0:
            return servers
        await asyncio.sleep(min(retry.pause_s(), max(retry.remaining_s, 0.0)))


async def _look_up(
    given: Iterable[tuple[str, int]], connector: Connector, lookup_s: float
) -> tuple[list[tuple[str, int]], bool]:
    """Return the servers, and whether every lookup has failed, not only lasted too long."""
    lookups = {
        server: asyncio.ensure_future(_canonical(*server, connector))
        for server in dict.fromkeys(given)
    }
    try:
        await asyncio.wait(lookups.values(), timeout=lookup_s)
    finally:
        for lookup in lookups.values():
            lookup.cancel()
    servers: dict[tuple[str, int], None] = {}
    failures = 0
    for server, lookup in lookups.items():
        ended = lookup.done() and not lookup.cancelled()
        failed = ended and lookup.exception() is not None
        servers.update(dict.fromkeys([server] if failed or not ended else lookup.result()))
        failures += failed
    return list(servers), failures == len(lookups)


async def _canonical(host: str, port: int, connector: Connector) -> list[tuple[str, int]]:
    addresses = await connector.resolve(host, port)
    if not addresses:
        raise OSError(f"The name {host} has no address.")
    return await asyncio.gather(*(_name_of(address, host) for address in addresses))


async def _name_of(address: Address, host: str) -> tuple[str, int]:
    """Return the canonical name of an address, or the given name if there is no answer."""
    try:
        name, _ = await threads.run_blocking(socket.getnameinfo, address, socket.NI_NUMERICSERV)
    except OSError:
        name = host
    return name, address[1]
