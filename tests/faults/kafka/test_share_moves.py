"""Handlers of share records whose leader moves, on real brokers and embedded ones."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
from share_crew import EmbeddedSite, RealSite, Site

from aiokclient import Admin, Producer, ShareConsumer
from aiokclient.admin import NewTopic
from aiokclient.errors import LockLostError
from aiokclient.share import engine
from aiokclient.testing import EmbeddedCluster

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def embedded() -> Iterator[Site]:
    with EmbeddedCluster(3) as cluster:
        yield EmbeddedSite(cluster)


@pytest.fixture(params=["embedded", "kafka3"])
def site(request: pytest.FixtureRequest) -> Site:
    """Three brokers, embedded or real."""
    if request.param == "embedded":
        found: Site = request.getfixturevalue("embedded")
        return found
    return RealSite(request.getfixturevalue(request.param))


def count_renewals(consumer: ShareConsumer[Any, Any]) -> Any:
    values = consumer.metrics().items()
    return sum(value for name, value in values if name.startswith("share.lock.renewals"))


@pytest.mark.fault(3)
@pytest.mark.parametrize("teller", ["fetches", "metadata"])
async def test_handlers_learn_of_moves_by_fetches_and_without_them_by_metadata(
    site: Site, teller: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if teller == "fetches":
        monkeypatch.setattr(engine, "LEADERS_S", 3600.0)  # Metadata is asked for once at most.
    topic = group = f"moves-{time.time_ns()}"
    options: dict[str, Any] = {"bootstrap_servers": site.bootstrap}
    async with Admin(**options) as admin, asyncio.timeout(TIMEOUT_S * 3):
        created = await admin.create_topics([NewTopic(topic, 1, 3)])
        created.raise_for_errors()
        (await admin.create_share_group(group, [topic], start="earliest")).raise_for_errors()
        async with Producer(**options) as producer:
            await producer.send(topic, b"job")
        async with ShareConsumer(topic, group_id=group, **options) as consumer:
            (record,) = await consumer.poll(TIMEOUT_S, tracked=True)
            reading = asyncio.create_task(consumer.poll(TIMEOUT_S * 3, tracked=True))
            if teller == "metadata":
                consumer.stop()
            await asyncio.sleep(1.0)
            leader = consumer._cluster.metadata.find_leader(topic, 0)
            caplog.set_level(logging.INFO, logger="aiokclient")

            async def handle() -> None:
                async with consumer.processing(record):
                    await site.move_leader(topic, 0, leader % 3 + 1)
                    await asyncio.Event().wait()

            with pytest.raises(LockLostError) as caught:
                await handle()
            assert caught.value.reason == "moved"
            events = [getattr(each, "event", "") for each in caplog.records]
            if teller == "fetches" and not count_renewals(consumer):
                # Without load, it is told long before the first renewal.
                assert "share_fetch_refused" in events
            reading.cancel()
            await asyncio.wait([reading])
