"""Rebootstraps on real sockets."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from rebootstrapping import NAME, NEW, move_endpoints

from aiokclient import Producer
from aiokclient.events import Rebootstrapped
from aiokclient.network.transport import Address, TcpConnector
from aiokclient.testing import EmbeddedCluster

PATIENCE_S = 0.5
"""The backlog counts as full if a connection attempt gets no answer for this number of seconds."""


class Names(TcpConnector):
    """A connector for which one name leads to an address that the test sets."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address

    async def resolve(self, host: str, port: int) -> list[Address]:
        if host == NAME:
            return [(self.address, port)]
        return await super().resolve(host, port)


@contextmanager
def full_backlog(host: str, port: int) -> Iterator[None]:
    """Listen at an address without accepting connections, so that the kernel drops SYNs."""
    waiting: list[socket.socket] = []
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(0)
        try:
            while True:
                caller = socket.socket()
                waiting.append(caller)
                caller.settimeout(PATIENCE_S)
                try:
                    caller.connect((host, port))
                except TimeoutError:
                    break
            yield
        finally:
            for caller in waiting:
                caller.close()


@pytest.mark.fault(28)
async def test_full_backlog_of_one_broker_leaves_the_rebootstrap_to_the_trigger_time() -> None:
    """While one broker drops SYNs and the others refuse, the client waits for the trigger time.

    The first broker may still be available, so the failures of several attempts to connect to it
    cause no rebootstrap before that time.
    """
    async with EmbeddedCluster(brokers=3, topics={"t": 3}, replication=3) as cluster:
        ports = [cluster.address(broker)[1] for broker in cluster.brokers]
        names = Names("127.0.0.1")
        options: dict[str, Any] = {
            "bootstrap_servers": ",".join(f"{NAME}:{port}" for port in ports),
            "connector": names,
            "metadata_recovery_rebootstrap_trigger_ms": 3_000,
            "socket_connection_setup_timeout_ms": 300,
            "socket_connection_setup_timeout_max_ms": 600,
        }
        async with Producer(**options) as producer:
            for partition in range(3):
                await producer.send("t", b"before", partition=partition)
            events = producer.events()
            for broker in cluster.brokers:
                cluster.stop(broker)
            with full_backlog("127.0.0.1", ports[0]):
                move_endpoints(cluster, NEW)
                for broker in cluster.brokers:
                    cluster.start(broker)
                names.address = NEW
                deliveries = [
                    producer.send("t", b"after", partition=partition) for partition in range(3)
                ]
                async for event in events:
                    if isinstance(event, Rebootstrapped):
                        assert event.trigger == "timeout"
                        break
                await asyncio.gather(*deliveries)
        values = [bytes(each.value or b"") for each in cluster.records("t")]
        assert sorted(values) == [b"after"] * 3 + [b"before"] * 3
