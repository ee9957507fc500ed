"""The subscription of a consumer, and the state of each assigned partition.

Several parts change this state: the application (subscribe, assign, seek, pause), the part that
determines the partitions of a subscription (the topic follower, or the membership in a group), and
the lookup of positions. The fetchers and `Reader` use it. These parts do not call each other. They
listen to changes of this state instead.

`PartitionBackoff` has the delays of requests after errors of single partitions. A consumer requests
positions, initial offsets, and records for as long as it runs. Its partitions fail and recover
independently of each other. So each partition counts its own failures, in `PartitionState.retry`,
and the policy only classifies the errors.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from aiokclient.background import Wakeup
from aiokclient.clock import Clock, SystemClock
from aiokclient.cluster.lifecycle.ownership import Weakly
from aiokclient.cluster.lifecycle.shown import some
from aiokclient.cluster.lifecycle.supervisor import Callbacks
from aiokclient.config.consumer import ConsumerConfig
from aiokclient.consumer.arguments import as_partitions
from aiokclient.consumer.state.offset_reset import EARLIEST, NONE, Reset
from aiokclient.consumer.state.partition import NO_EPOCH, PartitionState, Withheld
from aiokclient.errors import IllegalStateError, KafkaError, NoOffsetError
from aiokclient.log.client_log import ClientLog
from aiokclient.log.limited_log import LimitedLog
from aiokclient.metrics import Metrics, OwnMetrics
from aiokclient.policy import Backoff, Decision, Scope, classify
from aiokclient.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokclient.cluster.metadata.snapshot import ClusterMetadata
    from aiokclient.consumer.delivery.reader import Reader

FORMER = 16
"""The number of earlier subscriptions for which a late assignment is recognized."""


class Subscription:
    """Subscribed topics, by name or by pattern, and the listener."""

    listener = Weakly()
    """The application's listener, or None. Only the consumer keeps it alive."""

    def __init__(
        self, topics: Collection[str] | re.Pattern[str] = (), listener: Any = None
    ) -> None:
        self.pattern = topics if isinstance(topics, re.Pattern) else None
        self.topics = () if isinstance(topics, re.Pattern) else tuple(dict.fromkeys(topics))
        self.listener = listener

    def __bool__(self) -> bool:
        return self.pattern is not None or bool(self.topics)

    def replace_listener(self, listener: Any) -> None:
        """Call this listener from now on; None means no listener."""
        self.listener = listener

    def is_like(self, other: Subscription) -> bool:
        """Return whether both subscriptions have the same topics or pattern.

        Their listeners may differ.
        """
        return self.pattern == other.pattern and set(self.topics) == set(other.topics)

    def matches(self, topic: str, *, internal: bool) -> bool:
        """Return whether the subscription includes the topic. A pattern matches whole names."""
        if self.pattern is None:
            return topic in self.topics
        return not internal and self.pattern.fullmatch(topic) is not None

    def find_matching(self, metadata: ClusterMetadata, hide_internal: bool) -> list[str]:
        """Return the topics in the metadata that the subscription includes."""
        names = self.topics if self.pattern is None else sorted(metadata.topics)
        return [
            name
            for name in names
            if (info := metadata.find_topic(name)) is not None
            and self.matches(name, internal=info.internal and hide_internal)
        ]


class PartitionSource(Protocol):
    """The object that determines the partitions of a subscription: a group or a topic follower."""

    @property
    def followed_subscription(self) -> Subscription:
        """The subscription to which the partitions belong, which may be an earlier one."""
        ...

    @property
    def confirmed_until(self) -> float:
        """The time, on the loop's clock, until which the partitions are certainly assigned here."""
        ...

    def knows_its_partitions(self) -> bool:
        """Return whether the partitions to read are known, or at least some of them."""
        ...

    def find_cause(self) -> KafkaError | None:
        """Return why the partitions are not known yet; None if the reason is not known."""
        ...


class SubscriptionState:
    """The subscription, and the state of each assigned partition in a fixed order."""

    listener = Weakly()
    """The listener of the last `subscribe`, which is also called when the subscription ends."""

    def __init__(self, reset: Reset, *, grouped: bool = False, brokers_match: bool = False) -> None:
        self.reset = reset
        self._whole_topics: frozenset[str] = frozenset()
        self._brokers_match = brokers_match
        self._formers: list[Subscription] = []
        """The latest earlier subscriptions, if the brokers match patterns."""
        self.grouped = grouped
        """Whether a group assigns the partitions of subscribed topics and their initial offsets."""
        self._reader: Reader | None = None
        self._source: PartitionSource | None = None
        self._late = False
        self.own_metrics = OwnMetrics(Metrics(), "consumer")
        self.client_log = ClientLog("aiokclient.consumer", "aiokclient")
        self.log = LimitedLog(self.client_log, SystemClock())
        self.subscription = Subscription()
        self._dropped: dict[TopicPartition, PartitionState] = {}
        """Partitions that `unsubscribe` dropped in this iteration of the event loop.

        Always empty if there is a group."""
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._by_hand: dict[TopicPartition, None] = {}
        self._subscribed: dict[TopicPartition, None] = {}
        self._absent: dict[TopicPartition, PartitionState] = {}
        """Partitions of subscribed topics that the latest metadata lacks.

        One response of a lagging broker may omit a topic. When the topic is back, with the same id,
        reading continues at the same position. Always empty if there is a group."""
        self._relinquished: dict[TopicPartition, Subscription] = {}
        """Partitions that `unsubscribe` gave up and that the group has not revoked yet.

        Each value has the listener to which their revocation is reported."""
        self._shown: Collection[TopicPartition] = ()
        self._listeners: list[Callable[[], None]] = []
        self._callbacks: Callbacks | None = None
        self._pending = False

    def read_whole_topics(self, topics: Iterable[str]) -> None:
        """Read these topics from their first record if the group has no valid offset there."""
        self._whole_topics = frozenset(topics)

    def find_reset(self, tp: TopicPartition) -> Reset:
        """Return how to find the offset of a partition that has no valid position."""
        return EARLIEST if tp.topic in self._whole_topics else self.reset

    def add_change_listener(self, callback: Callable[[], None]) -> None:
        """Call `callback` soon after each change of partitions, positions, or pauses."""
        self._listeners.append(callback)

    def remove_change_listener(self, callback: Callable[[], None]) -> None:
        """Call `callback` no longer. Does nothing after the end of reading."""
        if callback in self._listeners:
            self._listeners.remove(callback)

    def set_metrics(self, own_metrics: OwnMetrics, log: ClientLog, clock: Clock) -> None:
        """Use these metrics and this log from now on."""
        self.own_metrics = own_metrics
        self.client_log = log
        self.log = LimitedLog(log, clock)

    def begin_reading(
        self,
        reader: Reader,
        source: PartitionSource,
        callbacks: Callbacks,
    ) -> None:
        """Connect the state with the parts of a consumer that starts.

        Listeners are called through `callbacks`, so that the supervisor notices their failures.
        """
        self._reader, self._source = reader, source
        self._callbacks, self._pending = callbacks, False

    def end_reading(self) -> None:
        """Drop the references to the parts of a consumer that ends, and to listeners."""
        self._listeners.clear()
        self._reader = self._source = None

    def update_positions(self) -> None:
        """Update positions from the iteration; to be called before positions are read or moved."""
        if self._reader is not None:
            self._reader.update_position()

    def get_confirmed_until(self) -> float:
        """Return the time, on the loop's clock, until which the assignment is certainly valid."""
        return math.inf if self._source is None else self._source.confirmed_until

    def are_partitions_known(self) -> bool:
        """Return whether the partitions of the subscription are known."""
        return self._source is None or self._source.knows_its_partitions()

    def report_change(self) -> None:
        """Call the listeners soon, once for all changes until then."""
        if self._reader is not None:
            self._reader.revalidate_exposed()
        if not self._pending and self._listeners:
            self._pending = True
            if self._callbacks is None:
                self.report_now()
            else:
                self._callbacks.call_soon(self.report_now)

    def report_now(self) -> None:
        """Call the listeners now, if something has changed."""
        if self._pending:
            self._pending = False
            self._dropped = {}
            for callback in list(self._listeners):
                callback()

    def restore_listener(self, listener: Any) -> None:
        """Restore the listener, so that the close of a consumer without references can call it."""
        self.listener = listener
        if self.subscription:
            self.subscription.replace_listener(listener)

    def apply_changes(self) -> None:
        """Apply pending changes; to be called before records are delivered."""
        if self.grouped:
            self.withhold_unconfirmed()
        if self._pending:
            self.report_now()

    # -- what is read

    def subscribe(self, subscription: Subscription) -> None:
        """Replace the subscription. Partitions that are assigned by hand stay.

        No records of topics that are no longer subscribed are delivered. A group revokes their
        partitions; without a group they are removed when the metadata of the new topics is read. A
        subscription to the same topics changes only the listener. An empty subscription gives the
        partitions up: the group revokes them even if their topics are subscribed again.
        """
        followed = self.subscription if self._source is None else self._source.followed_subscription
        former = Subscription(self.subscription.pattern or self.subscription.topics)
        for present in (self.subscription, followed):
            if present.is_like(subscription):
                present.replace_listener(subscription.listener)
                subscription = present
        self.subscription = subscription
        if self._brokers_match and former and not former.is_like(subscription):
            self._formers = [*self._formers[1 - FORMER :], former]
        if subscription:
            self.listener = subscription.listener
        if not self.grouped:
            self._drop_or_revive(subscription)
        elif not subscription:
            self._give_up_partitions()
        for tp in self._subscribed:
            if self.grouped or tp not in self._by_hand:
                wanted = self.is_wanted(tp)
                self.withhold([self.partitions[tp]], Withheld.UNSUBSCRIBED, not wanted)
        self.report_change()

    def is_wanted(self, tp: TopicPartition) -> bool:
        """Return whether the present subscription includes the topic of a partition.

        Brokers that match a pattern themselves understand it a little differently. What only they
        find in it is included, unless it belongs to one of the latest earlier subscriptions.
        """
        if self.subscription.matches(tp.topic, internal=False):
            return True
        if not self._brokers_match or self.subscription.pattern is None:
            return False
        return not any(former.matches(tp.topic, internal=False) for former in self._formers)

    def _give_up_partitions(self) -> None:
        former = Subscription(listener=self.listener)
        self._relinquished = dict.fromkeys(self._subscribed, former) | self._relinquished
        self.withhold([self.partitions[tp] for tp in self._relinquished], Withheld.REVOKING, True)

    @property
    def has_relinquished(self) -> bool:
        """Whether the group has to revoke partitions that `unsubscribe` gave up."""
        return bool(self._relinquished)

    def is_relinquished(self, tp: TopicPartition) -> bool:
        """Return whether `unsubscribe` gave up this partition, which is not revoked yet."""
        return tp in self._relinquished

    def group_by_listener(
        self, tps: Sequence[TopicPartition]
    ) -> list[tuple[Any, Sequence[TopicPartition]]]:
        """Return the listeners to call for these partitions, each with its own."""
        found: dict[Subscription, list[TopicPartition]] = {}
        own = [tp for tp in tps if tp not in self._relinquished]
        for tp in tps:
            if tp in self._relinquished:
                found.setdefault(self._relinquished[tp], []).append(tp)
        told: list[tuple[Any, Sequence[TopicPartition]]] = [
            (former.listener, each) for former, each in found.items()
        ]
        return [*told, (self.listener, own)] if own or not tps else told

    def is_listener_needed(self, listener: Any) -> bool:
        """Return whether this listener must still be told of partitions that were given up."""
        return any(former.listener is listener for former in self._relinquished.values())

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions, without those that were given up."""
        if not self._relinquished:
            return set(self.partitions)
        kept = {*self._by_hand, *self._shown}
        return {tp for tp in self.partitions if tp in kept or tp not in self._relinquished}

    @contextmanager
    def show_partitions(self, tps: Collection[TopicPartition]) -> Iterator[None]:
        """Let calls use these partitions within the block, even if they were given up.

        A listener may look at partitions that it has to release.
        """
        self._shown = tps
        try:
            yield
        finally:
            self._shown = ()

    def _drop_or_revive(self, subscription: Subscription) -> None:
        """Drop all partitions if the new subscription is empty; otherwise restore dropped ones.

        Only partitions that were dropped in the same iteration of the event loop, and whose topics
        are subscribed again, are restored.
        """
        dropped, self._dropped = self._dropped, {}
        if not subscription:
            self._dropped = dropped | {tp: self.partitions[tp] for tp in self._subscribed}
            self.assign_subscribed({})
        elif dropped:
            for tp, state in dropped.items():
                if subscription.matches(tp.topic, internal=False):
                    state.rewind()  # This drops the buffered records.
                    self._subscribed[tp] = None
                    self.partitions.setdefault(tp, state)

    def assign(self, tps: Iterable[TopicPartition]) -> None:
        """Assign these partitions by hand, instead of the earlier ones."""
        self._by_hand = dict.fromkeys(as_partitions(tps))
        self._update_partitions({})

    def assign_subscribed(self, resets: Mapping[TopicPartition, Reset | None]) -> None:
        """Assign these partitions for the subscription, instead of the earlier ones.

        Each value is the reset for a new partition. None means that a later call of `seek` or
        `look_up` determines its position.
        """
        self._subscribed = dict.fromkeys(resets)
        self._update_partitions(resets)

    def _update_partitions(self, resets: Mapping[TopicPartition, Reset | None]) -> None:
        self.update_positions()
        if self._relinquished:
            self._relinquished = {
                tp: former for tp, former in self._relinquished.items() if tp in self._subscribed
            }
        wanted = {**self._by_hand, **self._subscribed}
        for tp in [tp for tp in self.partitions if tp not in wanted]:
            state = self.partitions.pop(tp)
            state.on_removed()
            self._absent[tp] = state
        self._absent = {tp: state for tp, state in self._absent.items() if self._may_return(tp)}
        for tp in wanted:
            if tp in self._absent:
                state = self.partitions[tp] = self._absent.pop(tp)
                state.restart_fetching()
            elif tp not in self.partitions:
                state = self.partitions[tp] = PartitionState(tp)
                if self._late and tp not in self._by_hand:
                    state.withhold(Withheld.UNCONFIRMED, True)
                if self.grouped and tp not in self._by_hand:
                    # The group may assign what it was asked for before the subscription changed.
                    state.withhold(Withheld.UNSUBSCRIBED, not self.is_wanted(tp))
                start = resets.get(tp, None if self.grouped else self.reset)
                if start is not None:
                    self._begin_lookup(state, start)
        if not self.grouped:
            kept = self.partitions if resets else self._by_hand
            self.withhold([self.partitions[tp] for tp in kept], Withheld.UNSUBSCRIBED, False)
        self.report_change()

    def _may_return(self, tp: TopicPartition) -> bool:
        """Return whether to keep the position of a removed partition.

        It is kept if the topic is still subscribed and there is no group.
        """
        wanted = self.subscription
        return not self.grouped and wanted.matches(tp.topic, internal=False)

    def list_subscribed(self) -> list[TopicPartition]:
        """Return the partitions of the subscription; those assigned by hand are not included."""
        return list(self._subscribed)

    def describe_parts(self, group_id: str | None) -> dict[str, str | None]:
        """Return the parts of the repr of a consumer: its group, pattern, and topics."""
        wanted = self.subscription
        topics = dict.fromkeys([*wanted.topics, *(tp.topic for tp in self._by_hand)])
        return {
            "group": None if group_id is None else repr(group_id),
            "pattern": None if wanted.pattern is None else repr(wanted.pattern.pattern),
            "topics": some(topics),
        }

    def is_shared(self, tp: TopicPartition) -> bool:
        """Return whether a partition belongs to the subscription and was not assigned by hand."""
        return tp in self._subscribed and tp not in self._by_hand

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.partitions

    def __getitem__(self, tp: TopicPartition) -> PartitionState:
        state = self.partitions.get(tp)
        if state is None or (self._relinquished and tp not in self.assignment()):
            raise IllegalStateError(
                f"{TopicPartition(*tp)} is not assigned to this consumer. Assign it, or wait until "
                "assignment() includes it."
            )
        return state

    def choose_states(self, tps: Iterable[TopicPartition] | None) -> list[PartitionState]:
        """Return the states of these partitions; for None, of all in `assignment()`."""
        if tps is not None:
            return self._find_states(tps)
        if not self._relinquished:
            return list(self.partitions.values())
        assigned = self.assignment()
        return [state for tp, state in self.partitions.items() if tp in assigned]

    def _find_states(self, tps: Iterable[TopicPartition]) -> list[PartitionState]:
        return [self[tp] for tp in as_partitions(tps)]

    # -- positions

    def seek(self, tp: TopicPartition, offset: int, epoch: int | None = None) -> None:
        """Deliver the record at `offset` next, from the buffer if possible."""
        self.update_positions()
        state, known = self[tp], NO_EPOCH if epoch is None else epoch
        if self._reader is None or not self._reader.seek_buffered(state, offset, known):
            state.seek(offset, known)
        self.report_change()

    def look_up(self, states: Iterable[PartitionState], reset: Reset | None = None) -> None:
        """Look up positions by `reset`. If that is None, use the consumer's `auto_offset_reset`."""
        self.update_positions()
        for state in states:
            self._begin_lookup(state, self.reset if reset is None else reset)
        self.report_change()

    def return_to_committed(self, fallbacks: Mapping[PartitionState, int]) -> None:
        """Continue at committed offsets, or at these offsets where the group has none."""
        for state, fallback in fallbacks.items():
            state.return_to_committed(fallback)
        self.report_change()

    def discard_positions(self) -> None:
        """Find all positions anew, because offsets of another cluster mean nothing in this one.

        They come from the committed offsets of the group, if there is one, or else from the
        consumer's `auto_offset_reset`. Pauses stay.
        """
        self.update_positions()
        self._absent.clear()
        for state in self.partitions.values():
            state.forget_topic()
            if self.grouped:
                state.return_to_committed(-1)
            else:
                self._begin_lookup(state, self.reset)
        self._on_logs_replaced(None)
        self.report_change()

    def _on_logs_replaced(self, tps: Iterable[TopicPartition] | None) -> None:
        if self._reader is not None:
            self._reader.ends.on_logs_replaced(tps)

    def _begin_lookup(self, state: PartitionState, reset: Reset) -> None:
        if reset == NONE:
            state.fail(NoOffsetError(topic_partition=state.tp))
        else:
            state.look_up(reset)

    def reset_position(self, state: PartitionState, reason: str, reset: Reset) -> None:
        """Reset a position, and log the reason."""
        self.update_positions()
        self.log.write(
            logging.WARNING,
            ("reset", state.tp),
            "The position %d of %s is no longer valid: %s. It is reset by auto_offset_reset (%s)",
            state.position,
            state.tp,
            reason,
            reset.name,
            extra={"event": "position_reset", "topic": state.tp.topic},
        )
        self.own_metrics.metrics.get_topic_counters("consumer.position.resets").get_counter(
            state.tp.topic
        ).add()
        self._begin_lookup(state, reset)
        self._on_logs_replaced((state.tp,))
        self.report_change()

    def must_raise_error(self, error: KafkaError) -> bool:
        """Return whether the next request for records must raise a lasting error.

        Call it after `PartitionBackoff.delay_after_error`. An error of a whole broker is not raised
        while other partitions can be read.
        """
        if error.topic_partition is not None:
            return True
        wanted = [state for state in self.partitions.values() if not state.paused]
        return all((why := s.retry.trouble) is not None and not why.retriable for s in wanted)

    def move_to_truncation(self, state: PartitionState, end_offset: int, epoch: int) -> None:
        """Move the position back to the offset at which the log was truncated (KIP-320)."""
        self.update_positions()
        self.log.write(
            logging.WARNING,
            ("truncated", state.tp),
            "The log of %s was truncated: the position goes back from %d to %d",
            state.tp,
            state.position,
            end_offset,
            extra={"event": "log_truncated", "topic": state.tp.topic},
        )
        self.own_metrics.metrics.get_topic_counters("consumer.truncations").get_counter(
            state.tp.topic
        ).add()
        state.set_located_offset(end_offset, epoch)
        self._on_logs_replaced((state.tp,))
        self.report_change()

    def set_topic_id(self, state: PartitionState, topic_id: UUID, fresh: Reset) -> None:
        """Store the topic's id.

        If the id has changed, offsets of the former topic are invalid. Then the position that
        belongs to the new id is restored, or a position is looked up by `fresh`.
        """
        if state.topic_id is None:
            state.set_topic_id(topic_id)
        elif state.topic_id != topic_id:
            self.update_positions()
            if state.replace_topic(topic_id):
                self.log.write(
                    logging.WARNING,
                    ("topic id", state.tp),
                    "Topic %s has the id again that it had before: %s continues at offset %d",
                    state.tp.topic,
                    state.tp,
                    state.position,
                    extra={"event": "position_restored", "topic": state.tp.topic},
                )
                self._on_logs_replaced((state.tp,))
                self.report_change()
            else:
                reason = "the topic was deleted and created again"
                self.reset_position(state, reason, fresh)

    def pause(self, tps: Iterable[TopicPartition], paused: bool) -> None:
        """Pause or resume the partitions."""
        states = self._find_states(tps)
        self.update_positions()
        for state in states:
            state.pause(paused)
        self.report_change()

    def withhold_at_end(self, states: Iterable[PartitionState], held: bool) -> None:
        """Withhold partitions for an iteration that has reached their end offsets, or undo that."""
        self.withhold(states, Withheld.END_OFFSET, held)

    def withhold(self, states: Iterable[PartitionState], why: Withheld, on: bool) -> None:
        """Add or remove a reason to deliver no records of these partitions."""
        for state in states:
            state.withhold(why, on)
        self.report_change()

    def withhold_unconfirmed(self) -> None:
        """Withhold the group's partitions while it is uncertain whether they are still assigned."""
        late = asyncio.get_running_loop().time() >= self.get_confirmed_until()
        if late is not self._late:
            self._late = late
            states = [self.partitions[tp] for tp in self._subscribed if tp not in self._by_hand]
            self.withhold(states, Withheld.UNCONFIRMED, late)

    def find_consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset after the last delivered record of each partition with a position.

        With `tracked`, it is the offset of the lowest record that is not done.
        """
        self.update_positions()
        states = self.partitions.values()
        return {state.tp: state.make_commit(state.consumed) for state in states if state.is_located}


class PartitionBackoff:
    """The delays of the requests for the partitions of one consumer."""

    def __init__(
        self, clock: Clock, config: ConsumerConfig, subscription: SubscriptionState
    ) -> None:
        self._clock = clock
        self._subscription = subscription
        self.backoff = Backoff.of(config)
        self.longest_s = self.backoff.maximum_s
        """Seconds until the next attempt after an error that is probably not temporary."""

    def on_request_failure(
        self, state: PartitionState, error: KafkaError, scope: Scope
    ) -> Decision:
        """Delay the next request for a partition after an error; return the decision about it."""
        decision = classify(error, scope)
        delay_s = 0.0
        if decision.again:
            attempts = state.retry.attempts
            delay_s = self.backoff.compute_delay_after_s(error, scope, attempts, self._clock.rng)
        self.delay_after_error(state, error, delay_s or self.longest_s)
        return decision

    def delay_after_error(self, state: PartitionState, error: KafkaError, seconds: float) -> None:
        """Request nothing for the partition for some seconds; log a lasting error once."""
        if state.retry.delay_request(self._clock.monotonic() + seconds, error):
            self._subscription.client_log.warning(
                "%s cannot be read, and is retried: %s",
                state.tp,
                error,
                extra={"event": "partition_unreadable", "topic": state.tp.topic},
            )

    def on_obstruction(self, state: PartitionState, error: KafkaError) -> None:
        """Delay the next request for a batch that is too large; every request raises the error."""
        state.retry.delay_request(self._clock.monotonic() + self.longest_s, error)

    def delay_next_request(self, state: PartitionState) -> None:
        """Repeat a request after the usual delay, although its response had no error."""
        delay_s = self.backoff.compute_delay_s(state.retry.attempts, self._clock.rng)
        state.retry.delay_request(self._clock.monotonic() + delay_s)

    def on_position_lost(self, state: PartitionState) -> None:
        """Record that a position was lost; delay requests if that happens repeatedly."""
        state.retry.on_position_lost(self._clock.monotonic(), self.backoff, self._clock.rng)


class Reports:
    """The errors of one consumer's background work, each raised by one request for records."""

    def __init__(self, arrived: Wakeup, subscription: SubscriptionState) -> None:
        self._arrived = arrived
        self._subscription = subscription
        self.errors: dict[tuple[object, ...], Exception] = {}
        """The errors that no request has raised yet."""

    def add_error(self, error: Exception) -> None:
        """Make the next request raise an error, which replaces an earlier one of the same kind.

        A start that waits for partitions or positions raises the error as well.
        """
        subject = (error.topic_partition, error.broker) if isinstance(error, KafkaError) else ()
        self.errors[(type(error), *subject)] = error
        self._arrived.set()
        self._subscription.report_change()

    def withdraw_error(self, error: Exception) -> None:
        """Remove an error that no request has raised, because its cause is gone."""
        self.errors = {key: each for key, each in self.errors.items() if each is not error}

    def take_error(self) -> Exception:
        """Remove the oldest error and return it."""
        return self.errors.pop(next(iter(self.errors)))

    def clear(self) -> None:
        """Remove all errors."""
        self.errors.clear()
