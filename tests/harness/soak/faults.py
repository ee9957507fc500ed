"""The faults of a schedule, performed on real brokers, on connections, and on group members."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from aiokclient.network.transport import Address
from aiokclient.testing.proxy import FaultProxy, ProxyConnector, ProxyFaults

from .members import Members
from .schedule import NODES, SIDES, Fault, all_brokers, track_of
from .site import Site


class ClientConnector:
    """The connector of one client.

    It uses one side of the network, and counts its attempts to connect.
    """

    def __init__(self, side: ProxyConnector) -> None:
        self._side = side
        self.attempts = 0

    async def resolve(self, host: str, port: int) -> list[Address]:
        return await self._side.resolve(host, port)

    async def connect(self, address: Address, protocol_factory: Any, **named: Any) -> Any:
        self.attempts += 1
        return await self._side.connect(address, protocol_factory, **named)


class Network:
    """The two sides of the network. Each client connects through the proxies of one of them."""

    def __init__(self) -> None:
        self.sides = [ProxyConnector() for _ in SIDES]

    def connector(self, number: int) -> ClientConnector:
        """Return the connector for the client with this number."""
        return ClientConnector(self.sides[number % len(self.sides)])

    async def prepare(self, addresses: Sequence[Address]) -> None:
        """Start the proxies for all brokers, in the order of their node ids."""
        for side in self.sides:
            for address in addresses:
                await side.proxy(address)

    def proxies(self, fault: Fault) -> list[FaultProxy]:
        """Return the proxies that a fault concerns."""
        found = list(self.sides[fault.side].proxies.values())
        return found if all_brokers(fault) else [found[fault.node - 1]]

    async def close(self) -> None:
        for side in self.sides:
            await side.close()


class Breaker:
    """The part of a soak that causes faults.

    `perform` causes one fault, and returns when the fault is over: when the broker is in sync
    again, the proxies are clear, or the group has its members again.
    """

    def __init__(self, site: Site, network: Network, members: Members) -> None:
        self._site, self._network, self._members = site, network, members
        self.done: list[Fault] = []

    async def run(self, faults: Sequence[Fault], say: Callable[[str], None]) -> None:
        """Run all tracks at the same time.

        The faults of one track follow one another, each at its time or later.
        """
        loop = asyncio.get_running_loop()
        began = loop.time() - min((fault.at for fault in faults), default=0.0)

        async def track(name: str) -> None:
            for fault in faults:
                if track_of(fault.kind) == name:
                    await asyncio.sleep(max(began + fault.at - loop.time(), 0))
                    say(str(fault))
                    await self.perform(fault)
                    self.done.append(fault)

        async with asyncio.TaskGroup() as tracks:
            for name in ("broker", "network", "group"):
                tracks.create_task(track(name))

    async def perform(self, fault: Fault) -> None:
        if fault.kind in NETWORK:
            await self._disturb(fault)
        else:
            await getattr(self, f"_{fault.kind}")(fault)

    # -- brokers

    async def _kill(self, fault: Fault) -> None:
        await self._site.run(self._site.cluster.kill, fault.node)
        await self._return(fault)

    async def _terminate(self, fault: Fault) -> None:
        await self._site.run(self._site.cluster.stop, fault.node)
        await self._return(fault)

    async def _return(self, fault: Fault) -> None:
        await asyncio.sleep(fault.seconds)
        await self._site.run(self._site.cluster.start, fault.node)
        await self._site.in_sync()

    async def _suspend(self, fault: Fault) -> None:
        self._site.cluster.pause(fault.node)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            self._site.cluster.resume(fault.node)
        await self._site.in_sync()

    async def _move(self, fault: Fault) -> None:
        first = NODES.index(fault.node)
        await self._site.lead(lambda _: [*NODES[first:], *NODES[:first]])

    # -- the network

    async def _disturb(self, fault: Fault) -> None:
        """Set the faults of some proxies for a while, and clear them."""
        proxies = self._network.proxies(fault)
        change = NETWORK[fault.kind](fault)
        for proxy in proxies:
            proxy.faults = dataclasses.replace(ProxyFaults(), **change)
            proxy.changed()
            if fault.kind in CUTTING:
                proxy.cut()
        await asyncio.sleep(fault.seconds)
        for proxy in proxies:
            proxy.faults = ProxyFaults()
            proxy.changed()

    # -- groups

    async def _join(self, fault: Fault) -> None:
        member = self._members.join(fault.group, fault.number)
        await asyncio.sleep(fault.seconds)
        await self._members.leave(member)

    async def _replace(self, fault: Fault) -> None:
        old = self._members.of(fault.group)[0]
        self._members.join(fault.group, fault.number)
        await self._members.leave(old)

    async def _leave(self, fault: Fault) -> None:
        await self._members.leave(self._members.of(fault.group)[0])
        await asyncio.sleep(fault.seconds)
        self._members.join(fault.group, fault.number)

    async def _credentials(self, fault: Fault) -> None:
        await self._site.change_password_salt()


NETWORK: dict[str, Callable[[Fault], dict[str, Any]]] = {
    "cut": lambda _: {},
    "freeze": lambda _: {"frozen": True},
    "half_open": lambda _: {"half_open": True},
    "slow": lambda fault: {"latency_s": 0.02 + fault.number % 400 / 1000},
    "slice": lambda fault: {"slice_bytes": 50 + fault.number % 500},
    "short_lives": lambda _: {"lifetime_s": (0.5, 1.5)},
    "reset_requests": lambda fault: {"reset_requests_at": 1 + fault.number},
    "reset_responses": lambda fault: {"reset_responses_at": 1 + fault.number},
    "refuse": lambda _: {"refuse": True},
    # Trigger (a) of KIP-1102: no known broker is available.
    "rebootstrap": lambda _: {"refuse": True},
}
"""The kinds of faults of the network, with the settings of the proxies."""
CUTTING = ("cut", "refuse", "rebootstrap", "reset_requests", "reset_responses", "short_lives")
"""The kinds that also end all open connections."""
