"""The collector for prometheus_client: names, kinds, and scrapes at any time, in any thread."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from aiokclient import Client, Consumer, Producer
from aiokclient.errors.local import ArgumentTypeError
from aiokclient.telemetry import application, series
from aiokclient.telemetry.prometheus import Collector
from aiokclient.testing import EmbeddedCluster

ACKNOWLEDGED = 'aiokclient_producer_records_acknowledged_total{client_id="shop"}'
SHOP = {"client_id": "shop"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(topics={"orders": 1}) as running:
        yield running


def registered(*clients: object) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(Collector(*clients))
    return registry


def shop(cluster: EmbeddedCluster, **options: object) -> Producer[bytes, bytes]:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop", **options)


def value(text: str, series: str) -> float | None:
    """Return the value of a series in a text, or None if the text does not have it."""
    found = re.search(rf"^{re.escape(series)} (\S+)", text, re.M)
    return float(found[1]) if found else None


def scraped(registry: CollectorRegistry) -> str:
    return generate_latest(registry).decode()


async def test_metrics_have_valid_names_kinds_units_and_texts(cluster: EmbeddedCluster) -> None:
    async with (
        Client(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as client,
        Producer(client=client) as producer,
        Consumer("orders", client=client, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        producer.register_metric("orders-open.2", lambda: 7, labels={"a-b": "x\n\udc80"})
        registry = registered(client, producer)
        await producer.send("orders", b"x")
        assert await consumer.get(timeout=30)
        text = scraped(registry)
        families = {
            f.name: f for f in text_string_to_metric_families(open_metrics(registry).decode())
        }
    assert value(text, ACKNOWLEDGED) == 1
    assert families["aiokclient_producer_records_acknowledged"].type == "counter"
    lag = families["aiokclient_consumer_lag"]
    assert lag.type == "gauge"
    labels = {"client_id": "shop", "group": "g", "topic": "orders", "partition": "0"}
    assert [sample.labels for sample in lag.samples] == [labels]
    seconds = families["aiokclient_client_request_seconds"]
    assert (seconds.type, seconds.unit) == ("histogram", "seconds")
    assert seconds.documentation == "Time from writing a request to its response."
    one = [s for s in seconds.samples if s.labels["api"] == "Metadata"]
    counts = [s.value for s in one if s.name.endswith("_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] == next(s.value for s in one if s.name.endswith("_count"))
    assert families["aiokclient_consumer_buffer_bytes"].unit == "bytes"
    assert families["orders_open_2"].samples[0].labels == {"client_id": "shop", "a_b": "x\n?"}
    assert all(family.documentation for family in families.values())


async def test_scrape_is_possible_before_a_start_and_after_a_close(
    cluster: EmbeddedCluster,
) -> None:
    producer = shop(cluster)
    registry = registered(producer)
    assert scraped(registry) == ""
    async with producer:
        await producer.send("orders", b"x")
    assert value(scraped(registry), ACKNOWLEDGED) == 1
    assert value(await asyncio.to_thread(scraped, registry), ACKNOWLEDGED) == 1


async def test_scrape_is_possible_when_the_client_has_failed(cluster: EmbeddedCluster) -> None:
    producer = shop(cluster)
    registry = registered(producer)
    await producer.start()
    await producer.send("orders", b"x")
    producer._fail(LookupError("broken"))
    assert value(scraped(registry), ACKNOWLEDGED) == 1
    with pytest.raises(LookupError):
        await producer.flush()
    await producer.close()
    assert value(scraped(registry), ACKNOWLEDGED) == 1


async def test_dropped_client_is_not_kept_and_ends_after_a_scrape(cluster: EmbeddedCluster) -> None:
    producer = shop(cluster)
    registry = registered(producer)
    async with producer:
        await producer.send("orders", b"x")
        assert value(scraped(registry), ACKNOWLEDGED) == 1
    del producer
    gc.collect()
    assert value(scraped(registry), ACKNOWLEDGED) == 1
    assert scraped(registry) == ""


async def test_scrapes_of_many_threads_are_consistent(cluster: EmbeddedCluster) -> None:
    found: list[float | None] = []
    async with shop(cluster) as producer:
        registry = registered(producer)
        await producer.send("orders", b"x")
        is_over = threading.Event()

        def scrape() -> None:
            while not is_over.is_set():
                found.append(value(scraped(registry), ACKNOWLEDGED))

        threads = [asyncio.create_task(asyncio.to_thread(scrape)) for _ in range(4)]
        for _ in range(50):
            await producer.gather(producer.send_many("orders", [b"x"] * 20))
        is_over.set()
        await asyncio.gather(*threads)
        assert value(scraped(registry), ACKNOWLEDGED) == 1001
    assert None not in found


async def test_blocked_loop_delays_a_scrape_only_for_a_time(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "WAIT_S", 0.01)
    async with shop(cluster) as producer:
        registry = registered(producer)
        await producer.send("orders", b"x")
        assert value(scraped(registry), ACKNOWLEDGED) == 1
        await producer.send("orders", b"x")
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(scraped(registry)))
        thread.start()
        while thread.is_alive():
            time.sleep(0.001)  # noqa: ASYNC251 - It blocks the loop on purpose.
        assert value(found[0], ACKNOWLEDGED) == 1


def test_scrape_after_the_end_of_the_loop_has_the_last_values() -> None:
    async def main() -> CollectorRegistry:
        async with EmbeddedCluster(topics={"orders": 1}) as cluster, shop(cluster) as producer:
            kept.append(producer)
            registry = registered(producer)
            await producer.send("orders", b"x")
        return registry

    kept: list[object] = []
    assert value(scraped(asyncio.run(main())), ACKNOWLEDGED) == 1


def test_only_clients_can_be_collected() -> None:
    with pytest.raises(ArgumentTypeError, match="has no metrics"):
        Collector(object())


async def test_a_metric_of_the_application_may_read_the_registry(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "LONGEST_S", 60.0)  # Slow metrics are no longer called.
    async with shop(cluster) as producer:
        registry = registered(producer)
        producer.register_metric(
            "read", lambda: registry.get_sample_value(ACKNOWLEDGED.split("{")[0], SHOP) or 0
        )
        await producer.send("orders", b"x")
        assert value(scraped(registry), ACKNOWLEDGED) == 1
        text = await asyncio.to_thread(scraped, registry)
        assert value(text, 'read{client_id="shop"}') == 1
        scrapes = [asyncio.to_thread(scraped, registry) for _ in range(4)]
        assert len(await asyncio.gather(*scrapes)) == 4


def test_a_metric_may_read_the_registry_after_the_end_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application, "LONGEST_S", 60.0)  # Slow metrics are no longer called.

    async def main() -> CollectorRegistry:
        async with EmbeddedCluster() as cluster, shop(cluster) as producer:
            made = registered(producer)
            producer.register_metric("read", lambda: len(generate_latest(made)))
            assert scraped(made)
            kept.append(producer)
            return made

    kept: list[Producer[bytes, bytes]] = []
    registry = asyncio.run(main())
    assert value(scraped(registry), 'read{client_id="shop"}')


async def test_a_registry_refuses_a_second_collector(cluster: EmbeddedCluster) -> None:
    async with (
        shop(cluster) as producer,
        Client(bootstrap_servers=cluster.bootstrap_servers) as client,
    ):
        registry = registered(producer)
        with pytest.raises(ValueError, match="pass_all_clients_to_one_Collector"):
            registry.register(Collector(client))
        assert value(scraped(registry), ACKNOWLEDGED.replace("acknowledged", "failed")) == 0
        registered(producer, client)


@pytest.mark.parametrize("kind", [Client, Producer, Consumer])
def test_a_class_of_clients_cannot_be_collected(kind: type) -> None:
    with pytest.raises(ArgumentTypeError, match="has no metrics"):
        Collector(kind)
