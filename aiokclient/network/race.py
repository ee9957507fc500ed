"""The race of the connections to all addresses of one name, as Happy Eyeballs does (RFC 8305).

A name often has several addresses, some of which do not work: IPv6 addresses in a network without
IPv6, or the address of a host that is down. So the client does not wait for one address before it
tries the next. The attempts begin `STAGGER_S` apart, or as soon as the previous one has failed, and
alternate between IPv6 and IPv4. The first that is connected wins, and the others are cancelled.

A winner may turn out to be unusable after that. Then the addresses that have not failed race again,
including those that were cancelled.

Any error other than DisconnectedError (such as a certificate that is not accepted) ends the race:
no further attempt begins, and the error is raised unless an attempt in progress wins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, zip_longest

import anyio

import aiokclient.network.diagnosis as diagnosis
from aiokclient.config.kinds import bracketed
from aiokclient.errors import DisconnectedError
from aiokclient.network.connection import BrokerConnection
from aiokclient.network.transport import Address

__all__ = ["STAGGER_S", "AddressRace", "alternate"]

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
    """The attempts to connect to the addresses of one name.

    `connect(address)` returns a connection, and leaves none open if it raises or is cancelled.
    """

    def __init__(
        self,
        addresses: Iterable[Address],
        connect: Callable[[Address], Awaitable[BrokerConnection]],
    ) -> None:
        self._failures: dict[Address, DisconnectedError | None] = dict.fromkeys(
            alternate(addresses)
        )
        self._connect = connect
        self._won: tuple[Address, BrokerConnection] | None = None
        self._fatal: Exception | None = None
        self._ended: asyncio.Future[None] | None = None
        """A future that is done when an attempt has ended."""

    async def winner(self) -> tuple[Address, BrokerConnection] | None:
        """Return the first address that is connected, with its connection.

        Return None if each address has failed. Raises any error but DisconnectedError if no
        attempt in progress wins. A cancellation leaves no connection open.
        """
        self._won = None
        left = [address for address, failure in self._failures.items() if failure is None]
        if len(left) == 1:
            # One address needs no task.
            await self._attempt(left[0], None)
        else:
            await self._race(left)
        if self._won is None and self._fatal is not None:
            raise self._fatal
        return self._won

    def failed(self, address: Address, error: DisconnectedError) -> None:
        """Record that the connection of a winner turned out to be unusable."""
        self._failures[address] = error

    def closed_early(self) -> tuple[Address, DisconnectedError] | None:
        """Return the first address that closed a connection before it sent anything, or None."""
        for address, error in self._failures.items():
            if isinstance(error, diagnosis.ClosedEarlyError):
                return address, error
        return None

    def failure(self, name: str, node_id: int) -> DisconnectedError:
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

    async def _race(self, addresses: list[Address]) -> None:
        async with anyio.create_task_group() as group:
            for address in addresses:
                self._ended = asyncio.get_running_loop().create_future()
                group.start_soon(self._attempt, address, group.cancel_scope)
                # `asyncio.timeout` would cancel this task, and might conceal another cancellation
                # of it at the same moment.
                await asyncio.wait([self._ended], timeout=STAGGER_S)
                if self._won is not None or self._fatal is not None:
                    break

    async def _attempt(self, address: Address, others: anyio.CancelScope | None) -> None:
        try:
            connection = await self._connect(address)
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
