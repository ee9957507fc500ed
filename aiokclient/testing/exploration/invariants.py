"""The invariants that `explore` checks after each run: functions of the simulation.

An invariant raises AssertionError, with a sentence that says what is wrong. Any function of one
parameter can be one. The service reports what it has handled with `sim.handled(record)`, or with
`with sim.handling(record):`; the rest follows from the brokers' logs and responses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aiokclient.testing.exploration.history import Position
from aiokclient.types import TopicPartition

if TYPE_CHECKING:
    from aiokclient.testing.simulation.simulation import Simulation

Invariant: TypeAlias = "Callable[[Simulation], object]"
_SHOWN: Final = 5


def nothing_lost(sim: Simulation) -> None:
    """Check that each record whose send a broker acknowledged is in its log at the end.

    Records of aborted transactions are in the log, too.
    """
    logs: dict[TopicPartition, dict[int, tuple[bytes | None, bytes | None]]] = {}
    missing = []
    for each in sim.history.acknowledged:
        partition = each.partition
        if partition not in logs:
            logs[partition] = {
                record.offset: (record.key, record.value)
                for record in sim.kafka.records(partition.topic, partition.partition)
            }
        log = logs[partition]
        missing += [
            f"{partition} offset {offset} ({value!r}), acknowledged at {each.at:.3f} s"
            for offset, (key, value) in enumerate(each.values, each.base_offset)
            if log.get(offset) != (key, value)
        ]
    assert not missing, f"{len(missing)} acknowledged records are not in the log: {_list(missing)}."


def handled_at_least_once(sim: Simulation) -> None:
    """Check that each record that was fed, or that a group committed, was handled at the end.

    A record counts as handled, too, if its dead letter is in a topic.
    """
    missing = sim.history.find_unhandled()
    if not missing:
        return
    verb = "record was" if len(missing) == 1 else "records were"
    text = f"{len(missing)} {verb} never handled: {_list(map(str, missing))}."
    if not sim.history.handled:
        text += " The service has called neither sim.handled() nor sim.handling()."
    if sim.history.crashes:
        at, error = sim.history.crashes[-1]
        text += f" The service last failed at {at:.3f} s with {error}."
    raise AssertionError(text)


def order_within_key(sim: Simulation) -> None:
    """Check that the records of each key in a partition were first handled in their order.

    A record may be handled again later. Records without a key, and those that share groups read,
    are in no order.
    """
    last: dict[tuple[str, int, bytes], int] = {}
    for position, key in sim.history.order:
        if key is None or position.topic in sim.history.shared:
            continue
        lane = position.topic, position.partition, key
        before = last.get(lane, -1)
        assert before < position.offset, (
            f"{position} was handled first after offset {before}, which has the same key {key!r}."
        )
        last[lane] = position.offset


def committed_at_most_processed(sim: Simulation) -> None:
    """Check that at each commit all records before it were handled.

    The same holds for the records that members of share groups accept.
    """
    for each in sim.history.commits:
        if each.unhandled is not None:
            raise AssertionError(
                f"Group {each.group!r} committed {each.partition} up to {each.offset} at "
                f"{each.at:.3f} s, before {Position(*each.partition, each.unhandled)} was handled."
            )
    early = sim.history.early
    assert not early, (
        f"{len(early)} records were accepted before they were handled: {_list(early)}."
    )


def exactly_once(sim: Simulation) -> None:
    """Check that no output is in the log twice for readers of committed data.

    Outputs are the records of topics that are not fed. Two outputs are equal if their keys and
    values are. Outside of transactions, only runs are checked in which no record was handled twice,
    and the service was started once: otherwise a repeated output is what at least once means.
    """
    history = sim.history
    repeats = history.starts > 1 or any(count > 1 for count in history.handled.values())
    for topic in history.list_written_topics():
        counts = Counter(
            (record.key, record.value)
            for record, transactional in history.walk_committed(topic)
            if transactional or not repeats
        )
        twice = [f"{key!r}: {value!r}" for (key, value), count in counts.items() if count > 1]
        assert not twice, f"{len(twice)} outputs are in {topic!r} more than once: {_list(twice)}."


def bounded_in_hand(most: int) -> Invariant:
    """Return an invariant: no instance has more than `most` records in hand at a time.

    A record is in hand within `with sim.handling(record):`.
    """

    def bounded(sim: Simulation) -> None:
        """Check that no instance had more records in hand than that."""
        held, at = sim.history.most_in_hand
        assert held <= most, f"{held} records were in hand at {at:.3f} s. The limit is {most}."

    bounded.__name__ = bounded.__qualname__ = f"bounded_in_hand({most})"
    return bounded


def no_task_left(sim: Simulation) -> None:
    """Check that no task and no connection of the service remained after it had ended."""
    left = sim.history.left_tasks + sim.history.left_connections
    assert not left, f"The service left {len(left)} tasks or connections: {_list(left)}."


def closes_in_time(sim: Simulation) -> None:
    """Check that the service ended within 30 seconds each time that it was asked to."""
    slow = [f"{name} (asked at {at:.3f} s)" for name, at in sim.history.slow_ends]
    assert not slow, f"The service did not end within 30 s: {_list(slow)}."


def _list(items: Iterable[Any]) -> str:
    shown = [str(item) for item in items]
    more = f", and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more


ALL_INVARIANTS: Final[tuple[Invariant, ...]] = (
    closes_in_time,
    committed_at_most_processed,
    exactly_once,
    handled_at_least_once,
    no_task_left,
    nothing_lost,
    order_within_key,
)
"""All invariants that need no argument, in the order in which they are checked."""
