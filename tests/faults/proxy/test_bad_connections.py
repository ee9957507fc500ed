"""Real sockets to the embedded cluster, through a proxy that injects faults."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from driver import Writer, partitions_of
from ledger import Ledger
from thinned import one_in

from aiokclient import Producer
from aiokclient.testing import EmbeddedCluster, FaultProxy, ProxyConnector, ProxyFaults

TOPICS = {"t": 3, "u": 1}
QUICK = {"reconnect_backoff_ms": 1, "retry_backoff_ms": 1, "reconnect_backoff_max_ms": 20}


class Bad:
    """A cluster whose connections all go through fault proxies, and a ledger."""

    def __init__(self, cluster: EmbeddedCluster, connector: ProxyConnector) -> None:
        self.cluster, self.connector, self.ledger = cluster, connector, Ledger()

    @property
    def faults(self) -> ProxyFaults:
        return self.connector.faults

    def producer(self, **options: Any) -> Producer[Any, Any]:
        servers = self.cluster.bootstrap_servers
        return Producer(bootstrap_servers=servers, connector=self.connector, **{**QUICK, **options})

    def writer(self, producer: Any, *wanted: tuple[str, int], **options: Any) -> Writer:
        return Writer(producer, self.ledger, wanted or partitions_of(TOPICS), **options)

    async def proxy_of(self, broker: int) -> FaultProxy:
        """Return the proxy of a broker.

        From now on, its faults are separate from those of other proxies.
        """
        proxy = await self.connector.proxy(self.cluster.address(broker))
        proxy.faults = ProxyFaults()
        return proxy

    def check(self) -> None:
        """Check the promises A, B, and C of `tests/faults.md` against the brokers' logs."""
        for topic in TOPICS:
            self.ledger.consume_all(self.cluster.records(topic))
        self.ledger.check()


@pytest_asyncio.fixture
async def bad() -> AsyncIterator[Bad]:
    async with (
        EmbeddedCluster(brokers=2, topics=TOPICS) as cluster,
        ProxyConnector() as connector,
    ):
        yield Bad(cluster, connector)


@pytest.mark.fault(10)
async def test_memory_of_expired_batches_is_kept_while_they_are_written(bad: Bad) -> None:
    """Batches expire while they are in the buffer of a socket that accepts no more bytes.

    Meanwhile, the producer makes other batches.
    """
    options = {"delivery_timeout_ms": 300, "request_timeout_ms": 250, "linger_ms": 0}
    leader, other = bad.cluster.leader("t", 0), bad.cluster.leader("t", 1)
    async with bad.producer(**options) as producer:
        here = bad.writer(producer, ("t", 0), size=50_000)
        await here.run(5)
        await producer.flush()
        proxy = await bad.proxy_of(leader)
        proxy.faults.frozen = True
        for _ in range(150):
            here.send("t", 0)
        await bad.ledger.until(100, "failed")
        await bad.writer(producer, ("t", 1), number=1, size=50_000).run(20)
        proxy.faults.frozen = False
        proxy.changed()
        await here.run(5)
        await producer.flush()
    assert leader != other
    assert {"DeliveryTimeoutError"} >= {e.split("(")[0] for e in bad.ledger.failed.values()}
    bad.check()


@pytest.mark.fault(11)
@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_no_record_is_lost_when_connections_are_reset_at_each_byte(
    bad: Bad, direction: str
) -> None:
    """No record is lost or repeated if the connection is reset at byte n, for many n."""
    bad.faults.reset_once = True
    for byte in one_in(2, range(0, 600, 4)):
        async with bad.producer(linger_ms=0) as producer:
            setattr(bad.faults, f"reset_{direction}_at", byte)
            await bad.writer(producer, ("t", 0), number=byte).run(2)
            await producer.flush()
    assert not bad.ledger.failed
    bad.check()


@pytest.mark.fault(13)
async def test_the_request_timeout_detects_half_open_connections(bad: Bad) -> None:
    """The request timeout detects a broker that vanished without closing the connection."""
    options = {"request_timeout_ms": 200, "linger_ms": 0}
    async with bad.producer(**options) as producer:
        writer = bad.writer(producer)
        await writer.run(20)
        await producer.flush()
        bad.faults.half_open = True
        bad.connector.changed()
        bad.faults.half_open = False
        await writer.run(20)
        async with asyncio.timeout(20):
            await producer.flush()
    assert not bad.ledger.failed
    bad.check()


@pytest.mark.fault(14)
async def test_no_record_is_lost_when_a_broker_hangs(bad: Bad) -> None:
    async with bad.producer(request_timeout_ms=150, linger_ms=0) as producer:
        writer = bad.writer(producer)
        await writer.run(20)
        await producer.flush()
        bad.cluster.pause(1)
        await writer.run(50)
        asyncio.get_running_loop().call_later(0.4, bad.cluster.resume, 1)
        await producer.flush()
    assert not bad.ledger.failed
    bad.check()


@pytest.mark.fault(15)
async def test_no_record_is_lost_when_connections_are_short(bad: Bad) -> None:
    bad.faults.lifetime_s = (0.02, 0.1)
    async with bad.producer() as producer:
        writing = asyncio.create_task(bad.writer(producer, pause=0.001).run())
        while sum(proxy.accepted for proxy in bad.connector.proxies.values()) <= 30:
            await bad.ledger.until(len(bad.ledger.acknowledged) + 1)
        # A slow machine may get few records through connections of such a short lifetime.
        bad.faults.lifetime_s = None
        await bad.ledger.until(800)
        writing.cancel()
        await producer.flush()
    assert not bad.ledger.failed
    bad.check()


@pytest.mark.fault(39)
async def test_all_records_arrive_over_slow_connections(bad: Bad) -> None:
    """Far more records than the buffer holds are sent over slow connections in small slices."""
    bad.faults.latency_s, bad.faults.slice_bytes = 0.005, 10_000
    async with bad.producer(buffer_memory=200_000) as producer:
        await bad.writer(producer, size=1_000).run(3_000)
        await producer.flush()
    assert not bad.ledger.failed
    bad.check()
