"""Tests of what one client instance may send, and of how long a broker remembers it."""

from __future__ import annotations

import uuid

import pytest

from aiokclient.testing.broker.codes import Code
from aiokclient.testing.broker.telemetry import instances
from aiokclient.testing.broker.telemetry.instances import ClientInstance, ClientInstances
from aiokclient.testing.broker.telemetry.subscriptions import MetricsSubscriptions

INTERVAL_S = 60.0
ID = uuid.UUID(int=5)


class Broker:
    """The instances of a broker with a clock that tests set, and one subscription."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.subscriptions = MetricsSubscriptions()
        self.subscribe(60_000)
        self.instances = ClientInstances(lambda: self.now)

    def subscribe(self, interval_ms: int) -> None:
        self.subscriptions.find_configs("s").apply_changes({"interval.ms": str(interval_ms)})

    def use(self, instance_id: uuid.UUID = ID, connection: object = "c") -> ClientInstance:
        return self.instances.use_instance(instance_id, connection, self.subscriptions, dict)

    def ask(self) -> Code:
        return self.use().on_subscription_request(self.now)

    def push(
        self,
        *,
        subscription_id: int | None = None,
        terminating: bool = False,
        known_codec: bool = True,
        fits: bool = True,
    ) -> Code:
        instance = self.use()
        right = instance.subscription.subscription_id
        return instance.on_push(
            self.now,
            right if subscription_id is None else subscription_id,
            terminating=terminating,
            known_codec=known_codec,
            fits=fits,
        )


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_push_is_allowed_immediately_after_the_subscription_and_then_at_the_interval(
    broker: Broker,
) -> None:
    assert broker.ask() == Code.NONE
    broker.now += 0.001
    assert [broker.push(), broker.push()] == [Code.NONE, Code.THROTTLING_QUOTA_EXCEEDED]
    broker.now += INTERVAL_S - 0.001
    assert broker.push() == Code.THROTTLING_QUOTA_EXCEEDED
    broker.now += 0.001
    assert [broker.push(), broker.push()] == [Code.NONE, Code.THROTTLING_QUOTA_EXCEEDED]


def test_the_subscription_may_be_requested_at_the_interval_after_any_request(
    broker: Broker,
) -> None:
    assert [broker.ask(), broker.ask()] == [Code.NONE, Code.THROTTLING_QUOTA_EXCEEDED]
    broker.now += INTERVAL_S / 2
    assert broker.push() == Code.NONE
    broker.now += INTERVAL_S / 2
    assert broker.ask() == Code.THROTTLING_QUOTA_EXCEEDED
    broker.now += INTERVAL_S / 2
    assert broker.ask() == Code.NONE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"subscription_id": 1}, Code.UNKNOWN_SUBSCRIPTION_ID),
        ({"known_codec": False}, Code.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_the_subscription_may_be_requested_once_after_certain_errors(
    broker: Broker, wrong: dict[str, int], code: Code
) -> None:
    assert [broker.ask(), broker.push(**wrong)] == [Code.NONE, code]  # type: ignore[arg-type]
    assert [broker.ask(), broker.ask()] == [Code.NONE, Code.THROTTLING_QUOTA_EXCEEDED]
    # A subscription request that is allowed only because of an error does not permit another push:
    # the interval has not passed yet.
    assert broker.push() == Code.THROTTLING_QUOTA_EXCEEDED


def test_the_subscription_may_not_be_requested_after_other_errors(broker: Broker) -> None:
    assert [broker.ask(), broker.push(fits=False)] == [Code.NONE, Code.TELEMETRY_TOO_LARGE]
    assert broker.ask() == Code.THROTTLING_QUOTA_EXCEEDED
    broker.now += INTERVAL_S
    assert broker.push() == Code.NONE
    assert broker.use().refuse_metrics() == Code.INVALID_RECORD
    assert broker.ask() == Code.THROTTLING_QUOTA_EXCEEDED


def test_a_terminating_push_is_allowed_at_any_time_and_the_next_one_is_refused(
    broker: Broker,
) -> None:
    assert [broker.ask(), broker.push()] == [Code.NONE, Code.NONE]
    assert broker.push(terminating=True) == Code.NONE
    assert broker.push(terminating=True) == Code.INVALID_REQUEST
    broker.now += 2 * INTERVAL_S
    assert [broker.push(), broker.push()] == [Code.INVALID_REQUEST, Code.NONE]


def test_a_changed_subscription_begins_a_new_history(broker: Broker) -> None:
    assert [broker.ask(), broker.push(), broker.push(terminating=True)] == [Code.NONE] * 3
    before = broker.use().subscription
    broker.subscribe(70_000)
    assert broker.use().subscription != before
    assert [broker.ask(), broker.push()] == [Code.NONE, Code.NONE]


def test_an_instance_ends_after_three_intervals_without_a_request(broker: Broker) -> None:
    first = broker.use()
    broker.now += 3 * INTERVAL_S - 0.001
    assert broker.use() is first
    broker.now += 3 * INTERVAL_S
    assert broker.use() is not first


def test_an_instance_with_a_short_interval_lives_at_least_a_minute(broker: Broker) -> None:
    broker.subscribe(100)
    first = broker.use()
    broker.now += 59.9
    assert broker.use() is first
    broker.now += 60.0
    assert broker.use() is not first


def test_an_instance_ends_with_the_connection_that_created_it(broker: Broker) -> None:
    first = broker.use(connection="one")
    assert broker.use(connection="two") is first
    broker.instances.on_disconnected("two")
    assert broker.use(connection="two") is first
    broker.instances.on_disconnected("one")
    assert ID not in broker.instances
    broker.instances.on_disconnected("one")


def test_an_instance_that_two_connections_created_ends_with_the_first(broker: Broker) -> None:
    broker.use(connection="one")
    broker.subscribe(70_000)
    broker.use(connection="two")
    broker.instances.on_disconnected("one")
    assert ID not in broker.instances
    broker.instances.on_disconnected("two")


def test_instances_with_long_properties_make_room_earlier(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MOST_BYTES", 1000)
    for number in range(10):
        size = 300 if number != 5 else 5000
        broker.instances.use_instance(
            uuid.UUID(int=number),
            number,
            broker.subscriptions,
            lambda size=size: {"client_id": "c" * size},  # type: ignore[misc]
        )
        assert len(broker.instances) == (min(number + 1, 3) if number < 5 else max(number - 5, 1))
        if number == 8:
            break
    broker.subscribe(70_000)
    for number in (6, 7, 8):
        broker.use(uuid.UUID(int=number), connection=number)
    assert len(broker.instances) == 3


def test_the_least_recently_used_instance_makes_room(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "MOST_INSTANCES", 3)
    ids = [uuid.UUID(int=number) for number in range(5)]
    for each in (0, 1, 2, 0, 3):
        broker.use(ids[each])
    assert [each in broker.instances for each in ids[:4]] == [True, False, True, True]
    broker.now += 3 * INTERVAL_S
    broker.use(ids[4])
    assert len(broker.instances) == 1  # All other instances have expired.


def test_instances_of_lost_connections_are_forgotten(broker: Broker) -> None:
    for number in range(1000):
        broker.use(uuid.UUID(int=number), connection=number)
    for number in range(1000):
        broker.instances.on_disconnected(number)
    assert len(broker.instances) == 0
    broker.use(connection="c")
    broker.instances.clear_instances()
    assert len(broker.instances) == 0
