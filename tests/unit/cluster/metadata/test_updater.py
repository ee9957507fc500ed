"""Tests of when metadata is requested, and which callers receive it."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from aiokclient import policy
from aiokclient.clock import SystemClock
from aiokclient.cluster.metadata.listing import PART, by_name, listed
from aiokclient.cluster.metadata.snapshot import ClusterMetadata
from aiokclient.cluster.metadata.updater import LARGE, MetadataUpdater, Pacing
from aiokclient.config.client import ClientConfig
from aiokclient.errors import (
    ApiTimeoutError,
    ClusterAuthorizationError,
    DisconnectedError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from aiokclient.policy import Backoff, Scope
from aiokclient.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

OWNER = object()


class Cluster:
    """A cluster that answers metadata requests.

    `asked` has the topics of each request. `gate` delays the responses.
    """

    def __init__(self) -> None:
        self.leaders: dict[str, int] = {}
        self.epoch = 1
        self.applied = 0
        self.asked: list[list[str] | None] = []
        self.created: list[bool] = []
        self.error: KafkaError | None = None
        self.brokers = [MetadataResponseBroker(node_id=1, host="b1", port=9092)]
        self.gate = asyncio.Event()
        self.gate.set()
        self.changed = asyncio.Event()

    def on_metadata_applied(self) -> None:
        self.applied += 1

    async def fetch_metadata(self, topics: list[str] | None, auto_create: bool) -> MetadataResponse:
        self.asked.append(topics)
        self.created.append(auto_create)
        self.changed.set()
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        names = self.leaders if topics is None else topics
        return MetadataResponse(brokers=self.brokers, topics=[self._topic(name) for name in names])

    async def until(self, count: int) -> None:
        while len(self.asked) < count:
            self.changed.clear()
            await self.changed.wait()

    def _topic(self, name: str) -> MetadataResponseTopic:
        if name not in self.leaders:
            return MetadataResponseTopic(name=name, error_code=3)
        partition = MetadataResponsePartition(
            partition_index=0, leader_id=self.leaders[name], leader_epoch=self.epoch
        )
        return MetadataResponseTopic(name=name, partitions=[partition])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def make(cluster: Cluster) -> AsyncIterator[Callable[..., Awaitable[MetadataUpdater]]]:
    """Return a function that makes an updater, gives it a first snapshot, and starts it."""
    tasks: list[asyncio.Task[None]] = []

    async def made(**options: Any) -> MetadataUpdater:
        options = {
            "bootstrap_servers": "b1:9092",
            "retry_backoff_ms": 1,
            "retry_backoff_max_ms": 5,
            **options,
        }
        updater = MetadataUpdater(ClientConfig(**options), SystemClock(), cast(Any, cluster))
        await updater.install_first(MetadataResponse(brokers=cluster.brokers))
        tasks.append(asyncio.create_task(updater.run()))
        return updater

    yield made
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


Make = Callable[..., Awaitable[MetadataUpdater]]


async def test_a_refresh_returns_the_requested_topics(cluster: Cluster, make: Make) -> None:
    cluster.leaders["orders"] = 1
    updater = await make()
    snapshot = await updater.refresh(["orders"], timeout=5)
    assert snapshot.find_leader("orders", 0) == 1
    assert snapshot is updater.snapshot
    assert cluster.asked == [["orders"]]


async def test_requests_are_collected_while_one_is_in_flight(cluster: Cluster, make: Make) -> None:
    cluster.leaders.update(a=1, b=1, c=1)
    updater = await make()
    cluster.gate.clear()
    updater.request_update(["a"])
    await cluster.until(1)
    updater.request_update(["b"])
    updater.request_update(["c"])
    updater.request_update(["b"])
    cluster.gate.set()
    await cluster.until(2)
    assert cluster.asked == [["a"], ["b", "c"]]


async def test_a_refresh_waits_for_an_update_that_began_after_it(
    cluster: Cluster, make: Make
) -> None:
    cluster.leaders["orders"] = 1
    updater = await make()
    cluster.gate.clear()
    updater.request_update(["orders"])
    await cluster.until(1)
    refreshed = asyncio.create_task(updater.refresh(["orders"], timeout=5))
    await asyncio.sleep(0)
    cluster.gate.set()
    await refreshed
    assert len(cluster.asked) == 2


async def test_the_age_of_a_snapshot_is_bounded(cluster: Cluster, make: Make) -> None:
    cluster.leaders["orders"] = 1
    updater = await make(metadata_max_age_ms=10)
    updater.want_topic("orders", OWNER)
    await cluster.until(4)
    assert cluster.asked[-1] == ["orders"]


@pytest.mark.fault(4)
async def test_stale_metadata_causes_no_flood_of_requests(cluster: Cluster, make: Make) -> None:
    cluster.leaders["orders"] = 1
    updater = await make(retry_backoff_ms=20, retry_backoff_max_ms=1000)
    await updater.refresh(["orders"], timeout=5)
    deadline = asyncio.get_running_loop().time() + 0.09
    while asyncio.get_running_loop().time() < deadline:
        updater.request_update(["orders"])
        await asyncio.sleep(0)
    assert len(cluster.asked) <= 5


async def test_a_change_is_reported_once(cluster: Cluster, make: Make) -> None:
    cluster.leaders["orders"] = 1
    updater = await make()
    seen: list[tuple[ClusterMetadata, ClusterMetadata]] = []
    end = updater.add_listener(lambda old, new: seen.append((old, new)))
    await updater.refresh(["orders"], timeout=5)
    await updater.refresh(["orders"], timeout=5)
    assert [(old.find_leader("orders", 0), new.find_leader("orders", 0)) for old, new in seen] == [
        (-1, 1)
    ]
    end()
    end()
    cluster.leaders["orders"], cluster.epoch = 2, 2
    await updater.refresh(["orders"], timeout=5)
    assert len(seen) == 1


async def test_a_leader_hint_is_reported(cluster: Cluster, make: Make) -> None:
    cluster.leaders["orders"] = 1
    updater = await make()
    await updater.refresh(["orders"], timeout=5)
    seen: list[int] = []
    updater.add_listener(lambda old, new: seen.append(new.find_leader_epoch("orders", 0)))
    assert updater.apply_hint("orders", 0, 1, 7)
    assert not updater.apply_hint("orders", 0, 1, 7)
    assert seen == [7]


async def test_a_missing_topic_is_requested_until_it_exists(cluster: Cluster, make: Make) -> None:
    updater = await make()
    updater.want_topic("orders", OWNER)
    await cluster.until(3)
    assert isinstance(updater.errors["orders"], UnknownTopicOrPartitionError)
    cluster.leaders["orders"] = 1
    count = len(cluster.asked)
    await cluster.until(count + 1)
    await updater.refresh(["orders"], timeout=5)
    assert "orders" not in updater.errors


async def test_a_partition_without_a_leader_is_requested_again(
    cluster: Cluster, make: Make
) -> None:
    cluster.leaders["orders"] = -1
    updater = await make()
    updater.want_topic("orders", OWNER)
    await cluster.until(3)
    assert "no leader" in str(updater.errors["orders"])


async def test_topics_without_interest_are_not_requested(cluster: Cluster, make: Make) -> None:
    updater = await make()
    updater.want_topic("orders", OWNER)
    await cluster.until(2)
    updater.unwant_topics(OWNER)
    assert updater.errors == {}
    await updater.refresh(timeout=5)
    assert cluster.asked[-1] == []
    assert updater.snapshot.topics == {}


async def test_creation_is_allowed_if_one_owner_allows_it(cluster: Cluster, make: Make) -> None:
    updater = await make()
    updater.want_topic("orders", OWNER)
    updater.want_topic("orders", object(), auto_create=True)
    await cluster.until(1)
    assert all(cluster.created)


async def test_all_topics_can_be_requested(cluster: Cluster, make: Make) -> None:
    cluster.leaders.update(a=1, b=2)
    updater = await make()
    updater.want_all(OWNER)
    await updater.refresh(timeout=5)
    assert cluster.asked[-1] is None
    assert set(updater.snapshot.topics) == {"a", "b"}


async def test_failures_are_retried_and_waited_for(cluster: Cluster, make: Make) -> None:
    cluster.error = DisconnectedError("gone")
    updater = await make()
    refreshed = asyncio.create_task(updater.refresh(timeout=5))
    await cluster.until(3)
    assert updater.last_error is cluster.error
    # The error is kept until the next success. Its traceback would keep the connection alive.
    assert updater.last_error.__traceback__ is None
    cluster.error = None
    await refreshed
    assert updater.last_error is None


async def test_fatal_errors_are_raised_immediately(cluster: Cluster, make: Make) -> None:
    cluster.error = ClusterAuthorizationError()
    updater = await make()
    with pytest.raises(ClusterAuthorizationError):
        await updater.refresh(timeout=5)
    cluster.error = None
    await updater.refresh(timeout=5)


async def test_a_refresh_ends_by_its_timeout(cluster: Cluster, make: Make) -> None:
    cluster.error = DisconnectedError("gone")
    updater = await make()
    updater.request_update()
    await cluster.until(2)
    with pytest.raises(ApiTimeoutError) as caught:
        await updater.refresh(timeout=0.2)
    assert caught.value.__cause__ is cluster.error
    cluster.error = None
    cluster.gate.clear()
    with pytest.raises(ApiTimeoutError):
        await updater.refresh(timeout=0.02)


@pytest.mark.fault(27)
async def test_a_response_without_brokers_keeps_the_snapshot_and_is_retried(
    cluster: Cluster, make: Make
) -> None:
    cluster.leaders["orders"] = 1
    updater = await make()
    before = await updater.refresh(["orders"], timeout=5)
    brokers, cluster.brokers = cluster.brokers, []
    refreshed = asyncio.create_task(updater.refresh(["orders"], timeout=5))
    await cluster.until(4)
    assert updater.snapshot is before
    cluster.brokers = brokers
    await refreshed


@pytest.mark.fault(35)
async def test_a_cancelled_refresh_leaves_nothing(cluster: Cluster, make: Make) -> None:
    updater = await make()
    cluster.gate.clear()
    refreshed = asyncio.create_task(updater.refresh(timeout=5))
    await cluster.until(1)
    refreshed.cancel()
    await asyncio.wait([refreshed])
    cluster.gate.set()
    await updater.refresh(timeout=5)
    assert updater._waiters == []


async def test_topics_requested_at_different_times_are_refreshed_together(
    cluster: Cluster, make: Make
) -> None:
    """A refresh of two topics ends although the topics were requested at different times.

    One topic has its leader already. The other one is missing, so it is requested repeatedly.
    """
    cluster.leaders["there"] = 1
    updater = await make()
    updater.want_topic("missing", OWNER)
    for _ in range(10):
        async with asyncio.timeout(5):
            snapshot = await updater.refresh(["there", "missing"], timeout=5)
        assert snapshot.find_leader("there", 0) == 1
        assert snapshot.lacks_partition("missing", 0)
        assert not snapshot.lacks_partition("there", 0)
        assert snapshot.lacks_partition("there", 1)
        assert not snapshot.lacks_partition("never asked for", 0)
    assert (await updater.refresh([], timeout=5)).find_leader("there", 0) == 1


@pytest.mark.parametrize("topics", [["orders"], None])
async def test_refresh_is_not_delayed_when_earlier_ones_found_nothing_new(
    cluster: Cluster, make: Make, topics: list[str] | None
) -> None:
    cluster.leaders["orders"] = 1
    updater = await make(retry_backoff_ms=60_000, retry_backoff_max_ms=600_000)
    updater.want_topic("orders", OWNER)
    for _ in range(20):
        await updater.refresh(topics, timeout=5)


async def test_an_unavailable_topic_is_requested_at_a_limited_rate(
    cluster: Cluster, make: Make
) -> None:
    updater = await make(retry_backoff_ms=60_000, retry_backoff_max_ms=600_000)
    await updater.refresh(["missing"], timeout=5)
    with pytest.raises(ApiTimeoutError):
        await updater.refresh(["missing"], timeout=0.01)


async def test_wanted_topic_is_not_created_unless_its_owner_allows_it(
    cluster: Cluster, make: Make
) -> None:
    updater = await make()
    updater.want_topic("orders", OWNER)
    await cluster.until(1)
    assert (cluster.asked[0], cluster.created[0]) == (["orders"], False)


async def test_error_of_a_topic_is_kept_until_the_topic_has_none(
    cluster: Cluster, make: Make
) -> None:
    updater = await make()
    updater.want_topic("orders", OWNER)
    await cluster.until(2)
    assert isinstance(updater.errors["orders"], UnknownTopicOrPartitionError)
    cluster.leaders["orders"] = 1
    await updater.refresh(["orders"], timeout=5)
    assert updater.errors == {}


async def test_last_error_is_kept_until_an_update_succeeds(cluster: Cluster, make: Make) -> None:
    updater = await make()
    assert updater.last_error is None
    updater.want_topic("orders", OWNER)
    cluster.leaders["orders"] = 1
    cluster.error = DisconnectedError("lost")
    await cluster.until(2)
    assert str(updater.last_error) == str(cluster.error)
    cluster.error = None
    await updater.refresh(["orders"], timeout=5)
    assert updater.last_error is None


async def test_hurry_requests_all_wanted_topics_without_any_backoff(
    cluster: Cluster, make: Make
) -> None:
    cluster.leaders = {"orders": 1, "audit": 1}
    updater = await make(retry_backoff_ms=60_000, retry_backoff_max_ms=60_000)
    for topic in cluster.leaders:
        updater.want_topic(topic, OWNER)
    cluster.error = DisconnectedError("lost")
    await cluster.until(1)
    cluster.error = None
    await asyncio.sleep(0.01)
    assert len(cluster.asked) == 1, "the next attempt waits for its backoff"
    updater.request_full_update()
    async with asyncio.timeout(5):
        await cluster.until(2)
    assert sorted(cluster.asked[1] or ()) == ["audit", "orders"]
    await asyncio.sleep(0.01)
    assert len(cluster.asked) == 2


# -- large responses ------------------------------------------------------------------------------


class Watched(list[Any]):
    """A list that stores which threads iterate over it."""

    def __init__(self, items: Any) -> None:
        super().__init__(items)
        self.threads: set[int] = set()

    def __iter__(self) -> Any:
        self.threads.add(threading.get_ident())
        return super().__iter__()

    @property
    def is_read_elsewhere(self) -> bool:
        return self.threads != {threading.get_ident()}


def topics_with(*widths: int) -> list[MetadataResponseTopic]:
    return [
        MetadataResponseTopic(
            name=f"t{number}",
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=1, leader_epoch=1)
                for index in range(width)
            ],
        )
        for number, width in enumerate(widths)
    ]


@pytest.mark.parametrize(
    ("brokers", "widths", "elsewhere"),
    [
        (1, (1,), False),
        (LARGE - 1, (1,), False),
        (LARGE, (1,), True),
        (1, (0,) * (LARGE - 1), False),
        (1, (0,) * LARGE, True),
        (1, (1, LARGE - 2), False),
        (1, (1, LARGE - 1), True),
    ],
)
async def test_only_a_large_response_is_merged_in_a_thread(
    brokers: int, widths: tuple[int, ...], elsewhere: bool, cluster: Cluster
) -> None:
    nodes = [MetadataResponseBroker(node_id=id_, host="b", port=1) for id_ in range(brokers)]
    watched = Watched(nodes)
    config = ClientConfig(bootstrap_servers="b1:9092")
    updater = MetadataUpdater(config, SystemClock(), cast(Any, cluster))
    await updater.install_first(MetadataResponse(brokers=watched, topics=topics_with(*widths)))
    assert len(updater.snapshot.brokers) == brokers
    assert len(updater.snapshot.topics) == len(widths)
    assert watched.is_read_elsewhere is elsewhere


@pytest.mark.parametrize(
    ("widths", "elsewhere"),
    [
        ((1,) * (PART - 1), False),
        ((0,) * PART, True),
        ((1, PART - 2), False),
        ((1, PART - 1), True),
    ],
)
@pytest.mark.parametrize("convert", [listed, by_name])
async def test_only_many_topics_are_converted_in_a_thread(
    convert: Any, widths: tuple[int, ...], elsewhere: bool
) -> None:
    threads: set[int] = set()

    def make(topic: MetadataResponseTopic) -> tuple[str, int]:
        threads.add(threading.get_ident())
        return topic.name or "", len(topic.partitions)

    topics = topics_with(*widths)
    found = await convert(topics, make)
    assert len(found) == len(widths)
    assert topics == []
    assert (threads != {threading.get_ident()}) is elsewhere


STEADY = Backoff(initial_s=1.0, maximum_s=8.0, jitter=0.0)


def pacing() -> Pacing:
    return Pacing(STEADY, random.Random(1))


def test_subject_may_be_requested_at_once_when_it_never_was() -> None:
    assert pacing().find_earliest("t") == 0.0


def test_delay_grows_up_to_the_maximum_while_responses_bring_nothing_new() -> None:
    found, now, delays = pacing(), 100.0, []
    for _ in range(6):
        found.record_request("t", now, settled=False)
        delays.append(found.find_earliest("t") - now)
        now = found.find_earliest("t")
    assert delays == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_subjects_have_delays_of_their_own() -> None:
    found = pacing()
    found.record_request("t", 100.0, settled=False)
    found.record_request("t", 101.0, settled=False)
    found.record_request("u", 101.0, settled=False)
    assert (found.find_earliest("t"), found.find_earliest("u")) == (103.0, 102.0)


def test_delay_follows_the_row_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    lasting, short = DisconnectedError(), UnknownTopicOrPartitionError()
    monkeypatch.setattr(policy, "SHORT_DELAYS_S", {(Scope.METADATA, short.code): 0.25})
    subject = pacing()
    subject.record_request("a", 0.0, settled=False, error=lasting)
    subject.record_request("b", 0.0, settled=False, error=short)
    assert (subject.find_earliest("a"), subject.find_earliest("b")) == (1.0, 0.25)


def test_delay_begins_again_when_a_response_was_new() -> None:
    found = pacing()
    for now in (100.0, 101.0, 103.0):
        found.record_request("t", now, settled=False)
    found.record_request("t", 107.0, settled=True)
    assert found.find_earliest("t") <= 107.0
    found.record_request("t", 107.0, settled=False)
    assert found.find_earliest("t") == 108.0


def test_delay_begins_again_when_the_subject_was_forgotten() -> None:
    found = pacing()
    for now in (100.0, 101.0, 103.0):
        found.record_request("t", now, settled=False)
    found.allow_request("t")
    assert found.find_earliest("t") <= 103.0
    found.record_request("t", 103.0, settled=False)
    assert found.find_earliest("t") == 104.0


@pytest.mark.parametrize(("later", "delay"), [(8.0, 4.0), (8.1, 1.0)])
def test_delay_begins_again_when_the_last_request_was_long_ago(later: float, delay: float) -> None:
    found = pacing()
    for now in (100.0, 101.0):
        found.record_request("t", now, settled=False)
    now = found.find_earliest("t") + later
    found.record_request("t", now, settled=False)
    assert found.find_earliest("t") - now == pytest.approx(delay)


def test_subjects_that_are_no_longer_requested_take_no_memory() -> None:
    found = pacing()
    for number in range(5_000):
        found.record_request(f"t{number}", 20.0 * number, settled=False)
    assert len(found._next) <= 1_001
    found.record_request("t4999", 20.0 * 4_999 + 1, settled=False)
    assert found.find_earliest("t4999") == 20.0 * 4_999 + 3, "a recent subject keeps its delay"
