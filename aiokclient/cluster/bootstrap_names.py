"""The resolution of the names of the bootstrap servers, and the log line about unresolved ones."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from aiokclient import threads
from aiokclient.config.kinds import written
from aiokclient.network.diagnosis import UnresolvedError
from aiokclient.network.resolution import delayed_by, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokclient.config.client import ClientConfig
    from aiokclient.errors import KafkaError
    from aiokclient.log.client_log import ClientLog
    from aiokclient.network.transport import Address, Connector
    from aiokclient.policy import Retry

__all__ = ["UnresolvedNames", "servers_of"]

Server = tuple[str, int]


class UnresolvedNames:
    """The names that are not resolved during one bootstrap, for one line of the log."""

    def __init__(self, log: ClientLog, level: int, connector: Connector) -> None:
        self._log = log
        self._level = level
        self._connector = connector
        self._texts: dict[str, str] = {}
        self._told = False

    def add(self, address: str, error: KafkaError) -> None:
        """Add the address of a bootstrap server, with the error of the resolution."""
        self._texts.setdefault(address, error.message or str(error))

    def pending(self, host: str) -> str:
        """Return the outcome for a name whose resolution has not ended."""
        return f"its name was not resolved yet{delayed_by(self._connector, host)}"

    def tell(self) -> None:
        """Log the names, unless there are none or they have been logged."""
        if self._told or not self._texts:
            return
        self._told = True
        self._log.log(
            self._level,
            "Names of bootstrap servers are not resolved. %s",
            " ".join(dict.fromkeys(self._texts.values())),
            extra={"event": "bootstrap_failed", "address": ", ".join(self._texts)},
        )


async def servers_of(
    config: ClientConfig,
    connector: Connector,
    lookup_s: float,
    retry: Retry,
    unresolved: UnresolvedNames,
) -> list[Server]:
    """Return the names and ports of the bootstrap servers, according to `client_dns_lookup`.

    With `resolve_canonical_bootstrap_servers_only` each address of a name becomes a server, under
    its canonical name. All names are looked up at the same time, for at most `lookup_s` seconds. If
    no name is resolved, the lookups are repeated until the deadline of `retry`. A name that is not
    resolved by then, or has no canonical name, remains in the list.
    """
    given = tuple(dict.fromkeys(config.bootstrap_servers))
    if config.client_dns_lookup == "use_all_dns_ips":
        return list(given)
    while True:
        servers = await _look_up(given, connector, lookup_s, unresolved)
        if servers:
            return servers
        unresolved.tell()
        left_s = retry.remaining_s
        if left_s <= 0:
            return list(given)
        await asyncio.sleep(min(retry.pause_s(), left_s))
        lookup_s = min(lookup_s, max(retry.remaining_s, 0.0))


async def _look_up(
    given: Iterable[Server], connector: Connector, lookup_s: float, unresolved: UnresolvedNames
) -> list[Server]:
    """Return the servers that the names stand for, or an empty list if none is resolved."""
    lookups = [_canonical(server, connector, lookup_s) for server in given]
    outcomes = await asyncio.gather(*lookups, return_exceptions=True)
    servers: dict[Server, None] = {}
    found = False
    for server, outcome in zip(given, outcomes, strict=True):
        if isinstance(outcome, UnresolvedError):
            unresolved.add(written(server), outcome)
            servers[server] = None
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            found = True
            servers.update(dict.fromkeys(outcome))
    return list(servers) if found else []


async def _canonical(server: Server, connector: Connector, lookup_s: float) -> list[Server]:
    """Return the canonical names of a server's addresses, or the server if the lookup takes long.

    Raises UnresolvedError if it has no address.
    """
    deadline = asyncio.get_running_loop().time() + lookup_s
    addresses = await resolve(connector, *server, lookup_s)
    try:
        async with asyncio.timeout_at(deadline):
            return await asyncio.gather(*(_name_of(address, server[0]) for address in addresses))
    except TimeoutError:
        return [server]


async def _name_of(address: Address, given: str) -> Server:
    """Return the canonical name of an address, or the given name if the system finds none."""
    try:
        name, _ = await threads.run_blocking(socket.getnameinfo, address, socket.NI_NUMERICSERV)
    except OSError:
        name = given
    return name, address[1]
