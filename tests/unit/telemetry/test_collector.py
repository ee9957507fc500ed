"""The collector computes rates, averages, and extreme values for the time since the last push."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from aiokclient.log.client_log import ClientLog
from aiokclient.metrics import EMPTY, Counter, Gauge, Histogram, Labels, Metrics, OwnMetrics
from aiokclient.telemetry.application import ApplicationMetrics
from aiokclient.telemetry.collector import ClientCollector
from aiokclient.telemetry.points import HistogramValue, Point, PointKind
from aiokclient.telemetry.pushes import AcceptedValues, Accumulation
from aiokclient.telemetry.subscription import NamePrefixes

P = "org.apache.kafka."
EVERYTHING = NamePrefixes([""])


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return 1_700_000_000_000


class ChangingOwner:
    """An owner whose attributes the test changes."""

    def __init__(self, **attributes: str) -> None:
        self.attributes = attributes

    @property
    def metric_attributes(self) -> Labels:
        return tuple(self.attributes.items())


ATTRIBUTES = (("transactional_id", "tx"),)


class World:
    """A collector with one producer, at a time that the test sets."""

    def __init__(self, kind: str = "producer", membership: str = "") -> None:
        self.clock = FakeClock()
        self.metrics = Metrics(self.clock)
        self.application = ApplicationMetrics()
        self.child = OwnMetrics(self.metrics, kind, membership, attributes=ATTRIBUTES)
        self.metrics.add_owner(self.child)
        self.end = self.child.end_owner
        self.collector = ClientCollector(
            self.metrics, self.application, self.clock, ClientLog("aiokclient.telemetry", "client")
        )

    def points(self) -> list[Point]:
        return self.collector.collect_points(EVERYTHING)

    def value(self, name: str, **labels: str) -> Any:
        points = [p for p in self.points() if (p.name, dict(p.labels)) == (P + name, labels)]
        assert len(points) == 1
        return points[0].value


@pytest.fixture
async def world() -> Any:
    world = World()
    yield world
    world.collector.close()


async def test_rates_concern_the_time_since_the_last_accepted_push(world: World) -> None:
    failed = world.child.counter("failed")
    failed.add(10)
    world.clock.now += 5
    assert world.value("producer.record.error.rate") == 2
    failed.add(20)
    world.clock.now += 5
    assert world.value("producer.record.error.rate") == 3  # No push has been accepted yet.
    world.collector.begin_span()
    failed.add(4)
    world.clock.now += 2
    assert world.value("producer.record.error.rate") == 2
    assert world.value("producer.record.error.total") == 34


async def test_what_happens_between_collect_and_restart_is_in_the_next_span(world: World) -> None:
    batches = world.child.spread("batches")
    batches.observe(50)
    world.clock.now += 1
    assert world.value("producer.batch.size.max") == 50
    batches.observe(40)
    world.collector.begin_span()
    world.clock.now += 1
    assert world.value("producer.batch.size.max") == 40
    assert world.value("producer.batch.size.avg") == 40


async def test_a_maximum_stays_until_a_push_is_accepted(world: World) -> None:
    batches = world.child.spread("batches")
    batches.observe(50)
    assert world.value("producer.batch.size.max") == 50
    batches.observe(40)
    assert world.value("producer.batch.size.max") == 50
    assert world.value("producer.batch.size.avg") == 45


async def test_averages_without_observations_are_not_a_number(world: World) -> None:
    world.child.spread("batches").observe(7)
    world.points()
    world.collector.begin_span()
    assert math.isnan(world.value("producer.batch.size.avg"))
    assert math.isnan(world.value("producer.batch.size.max"))


async def test_a_topic_that_was_deleted_has_no_series(world: World) -> None:
    world.child.counter("topic.failed", topic="gone").add(3)
    world.child.counter("topic.failed", topic="kept").add(4)
    world.points()
    world.metrics.keep_topics(lambda topic: topic == "kept")
    found = [p for p in world.points() if p.name == f"{P}producer.topic.record.error.total"]
    assert [(p.labels, p.value) for p in found] == [((("topic", "kept"),), 4.0)]


async def test_topics_above_the_limit_share_one_series(world: World) -> None:
    for number in range(1500):
        world.child.counter("topic.failed", topic=f"t{number}").add(1)
    found = [p for p in world.points() if p.name == f"{P}producer.topic.record.error.total"]
    assert len(found) == 1001
    assert sum(p.value for p in found) == 1500


async def test_partitions_are_left_out_above_the_limit_of_series() -> None:
    world = World("consumer", "assigned")
    assigned = 100
    labels = [(("topic", "t"), ("partition", str(number))) for number in range(100)]
    world.child.gauge("assigned", lambda: assigned)
    world.child.compute_series("lags", lambda: [(one, EMPTY) for one in labels])
    name = f"{P}consumer.fetch.manager.records.lag.max"
    left_out = "consumer.aiokclient.telemetry.partitions.left.out.total"
    assert sum(p.name == name and bool(p.labels) for p in world.points()) == 100
    assert world.value(left_out) == 0
    assigned = 10_000
    points = world.points()
    assert not any("partition" in dict(p.labels) for p in points)
    assert any(p.name == name for p in points)  # The series without labels remains.
    assert world.value(left_out) == 2
    assigned = 100
    assert any("partition" in dict(p.labels) for p in world.points())
    world.collector.close()


async def test_a_closed_child_is_pushed_once_more(world: World) -> None:
    world.child.counter("failed").add(5)
    world.end()
    assert world.value("producer.record.error.total") == 5
    world.collector.begin_span()
    assert not any(p.name.startswith(f"{P}producer.record") for p in world.points())


async def test_a_child_that_is_closed_during_a_push_is_pushed_once_more(world: World) -> None:
    failed = world.child.counter("failed")
    world.points()
    failed.add(5)
    world.end()
    world.collector.begin_span()
    assert world.value("producer.record.error.total") == 5
    world.collector.begin_span()
    assert not any(p.name.startswith(f"{P}producer.record") for p in world.points())


async def test_the_first_rates_concern_the_time_since_the_client_began() -> None:
    world = World()
    world.child.counter("failed").add(10)
    world.clock.now += 5
    assert world.value("producer.record.error.rate") == 2
    world.collector.close()


async def test_points_are_those_of_the_moment_when_they_were_taken(world: World) -> None:
    quantity, spread = world.child.counter("failed"), world.child.spread("batches")
    quantity.add(5)
    spread.observe(5)
    taken = world.collector.take_metrics(EVERYTHING)
    quantity.add(1)
    spread.observe(6)
    world.clock.now += 5
    values = {p.name: p.value for p in taken.compute_points()}
    assert values[f"{P}producer.record.error.total"] == 5
    assert values[f"{P}producer.batch.size.max"] == 5
    assert len(values) <= taken.most


async def test_children_with_the_same_attributes_have_sums_of_their_own(world: World) -> None:
    twin = OwnMetrics(world.metrics, "producer", attributes=ATTRIBUTES)
    world.metrics.add_owner(twin)
    sums = Accumulation(0)
    sums.follow_temporality(True)
    found = []
    for number in (100, 10):
        world.child.counter("failed").add(number)
        twin.counter("failed").add(1)
        points = [p for p in world.points() if p.name == f"{P}producer.record.error.total"]
        found.append([measured.value for measured in sums.measure_points(points)])
        sums.accept_values(AcceptedValues(points, 0))
    assert found == [[100, 1], [10, 1]]


async def test_a_sum_continues_when_the_attributes_change() -> None:
    world, member = World("consumer", "classic"), ChangingOwner(group_member_id="m1")
    consumer = OwnMetrics(world.metrics, "consumer", "classic", owner=member)
    world.metrics.add_owner(consumer)
    sums = Accumulation(0)
    sums.follow_temporality(True)
    name = f"{P}consumer.fetch.manager.records.consumed.total"
    found = []
    for member_id, count in (("m1", 10), ("m2", 15)):
        member.attributes["group_member_id"] = member_id
        consumer.counter("records").add(count)
        points = [p for p in world.points() if p.name == name and p.resource[0][1] == member_id]
        found.append([measured.value for measured in sums.measure_points(points)])
        sums.accept_values(AcceptedValues(points, 0))
    assert found == [[10], [15]]
    world.collector.close()


async def test_a_topic_that_returns_is_counted_from_zero(world: World) -> None:
    sums = Accumulation(0)
    sums.follow_temporality(True)
    found = []
    for count in (3, 5):
        world.child.counter("topic.failed", topic="t").add(count)
        taken = world.collector.take_metrics({f"{P}producer.topic.record.error.total"})
        sums.forget_topics(taken.ended_topics)
        points = taken.compute_points()
        found.append([measured.value for measured in sums.measure_points(points)])
        sums.accept_values(AcceptedValues(points, 0))
        world.metrics.keep_topics(lambda topic: False)
    assert found == [[3], [5]]


async def test_the_number_of_series_is_pushed(world: World) -> None:
    world.child.counter("topic.failed", topic="a").add(1)
    points = world.points()
    (count,) = [p.value for p in points if p.name == f"{P}kafka.count.count"]
    assert count == len(points) - 1


async def test_connections_have_the_attributes_of_their_only_user(world: World) -> None:
    def resources() -> set[Any]:
        name = f"{P}producer.connection.count"
        world.metrics.connections.gauge("connections", lambda: 3)
        return {p.resource for p in world.points() if p.name == name}

    assert resources() == {(("transactional_id", "tx"),)}
    world.metrics.add_owner(OwnMetrics(world.metrics, "producer"))
    assert resources() == {()}


async def test_attributes_that_have_ended_stay_in_the_last_push(world: World) -> None:
    owner = ChangingOwner(group_id="g", group_member_id="m")
    world.metrics.add_owner(OwnMetrics(world.metrics, "consumer", "consumer", owner=owner))
    name = f"{P}consumer.last.poll.seconds.ago"
    before = [p for p in world.points() if p.name == name]
    del owner.attributes["group_member_id"]
    after = [p for p in world.points() if p.name == name]
    assert before == after
    assert dict(after[0].resource) == {"group_id": "g", "group_member_id": "m"}


class TestApplicationMetrics:
    """Metrics that the application registers (KIP-1076)."""

    async def test_each_kind_of_instrument_has_its_kind_of_point(self, world: World) -> None:
        counter, gauge, histogram = Counter(), Gauge(), Histogram([1.0])
        counter.add(3)
        gauge.set(4)
        histogram.observe(0.5)
        metrics = world.application
        metrics.register_metric("shop.sold", counter, {"shop": "north"}, "")
        metrics.register_metric("shop.open", gauge, {}, "")
        metrics.register_metric("shop.waits", histogram, {}, "s")
        metrics.register_metric("shop.staff", lambda: 7, {}, "")
        found = {p.name: p for p in world.points() if p.name.startswith("shop.")}
        assert found["shop.sold"] == Point("shop.sold", PointKind.SUM, 3.0, (("shop", "north"),))
        assert found["shop.open"][1:3] == (PointKind.GAUGE, 4.0)
        assert found["shop.waits"].value == HistogramValue((1.0,), (1, 0), 0.5)
        assert found["shop.waits"].unit == "s"
        assert found["shop.staff"][1:3] == (PointKind.GAUGE, 7.0)
        metrics.unregister_metrics("shop.sold")
        metrics.unregister_metrics("shop.unknown")
        assert {p.name for p in world.points()}.isdisjoint({"shop.sold"})

    async def test_a_function_that_raises_is_left_out_with_one_warning(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken() -> float:
            raise ZeroDivisionError

        world.application.register_metric("app.broken", broken, {}, "")
        world.application.register_metric("app.text", lambda: "seven", {}, "")
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        world.application.register_metric("app.cancelled", cancelled.result, {}, "")
        world.application.register_metric("app.fine", lambda: 1, {}, "")
        for _ in range(3):
            names = [p.name for p in world.points() if p.name.startswith("app.")]
            assert names == ["app.fine"]
        warnings = [r for r in caplog.records if r.event == "telemetry_metric_left_out"]
        assert [r.metric for r in warnings] == ["app.broken", "app.text", "app.cancelled"]

    async def test_a_slow_function_is_not_called_again(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls = []

        def slow() -> float:
            calls.append(1)
            world.clock.now += 0.011
            return 1.0

        world.application.register_metric("app.slow", slow, {}, "")
        assert not any(p.name == "app.slow" for p in world.points())
        assert not any(p.name == "app.slow" for p in world.points())
        assert len(calls) == 1
        warnings = [r for r in caplog.records if r.event == "telemetry_metric_left_out"]
        assert [r.metric for r in warnings] == ["app.slow"]

    async def test_a_metric_that_is_not_wanted_is_not_read(self, world: World) -> None:
        calls: list[int] = []
        world.application.register_metric("app.unwanted", lambda: len(calls), {}, "")
        world.application.register_metric("app.read", lambda: calls.append(1) or 0, {}, "")
        found = world.collector.collect_points({"app.unwanted"})
        assert [(p.name, p.value) for p in found] == [("app.unwanted", 0.0)]
        assert not calls

    @pytest.mark.parametrize(("name", "source"), [("", int), (3, int), ("x", 5), ("x", None)])
    async def test_anything_else_is_refused(self, world: World, name: Any, source: Any) -> None:
        with pytest.raises(TypeError):
            world.application.register_metric(name, source, {}, "")
