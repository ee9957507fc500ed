"""A plan that moves replicas to other brokers, its file, and how far the cluster is with it.

The file is that of kafka-reassign-partitions, with more fields, which that tool ignores:

    {"version": 1,
     "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3],
                     "log_dirs": ["any", "any"], "before": [1, 3], "size": 1048576}],
     "brokers": {"before": {"1": {"replica_count": 1, "leader_count": 1, "size": 1048576}, ...},
                 "after": {...}}}

A file of that tool has no `before`, which a cancellation needs: the brokers keep the set of the
former replicas, but not their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiokclient.admin.arguments import TOPIC, as_name
from aiokclient.admin.replicas.partitions import PartitionReassignment
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.types import TopicPartition, is_integer, public_in, shortened

VERSION: Final = 1
ANY_DIRECTORY: Final = "any"
LOAD_FIELDS: Final = ("replica_count", "leader_count", "size")


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The brokers of a partition before and after a move, the preferred leader first.

    `before` is None if the plan is from a file that lacks it. `size` is the number of bytes of one
    replica, or None if it is unknown. `log_dirs` has the directory of each replica after the move,
    or "any"; without it, the brokers choose.
    """

    after: tuple[int, ...]
    before: tuple[int, ...] | None = None
    size: int | None = None
    log_dirs: tuple[str, ...] = ()

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that get a replica, or all if those before the move are unknown."""
        return tuple(each for each in self.after if each not in (self.before or ()))

    @property
    def directories(self) -> dict[int, str]:
        """The directories that the plan names for the replicas, by broker."""
        placed = zip(self.after, self.log_dirs, strict=False)
        return {broker: path for broker, path in placed if path != ANY_DIRECTORY}

    @property
    def removing(self) -> tuple[int, ...]:
        """The brokers that lose their replica."""
        return tuple(each for each in self.before or () if each not in self.after)

    @property
    def bytes_to_copy(self) -> int:
        """The number of bytes that are copied between brokers."""
        return (self.size or 0) * len(self.adding)


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """The load of a broker.

    `replica_count` is the number of its replicas, `leader_count` the number of partitions of which
    it is the preferred leader, and `size` the number of bytes of its replicas.
    """

    replica_count: int = 0
    leader_count: int = 0
    size: int = 0


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """A plan that moves replicas to other brokers, and with them the preferred leaders.

        plan = await admin.rebalance_plan(["orders"])
        Path("plan.json").write_text(plan.to_json())

    `moves` has each partition whose replicas or whose preferred leader change. `loads_before` and
    `loads_after` have the loads of the brokers, by id. They count the partitions that the plan was
    made for, and are empty if the plan is from a file that lacks them. A plan without moves is
    false.
    """

    moves: Mapping[TopicPartition, PlannedMove]
    loads_before: Mapping[int, BrokerLoad] = field(default_factory=dict)
    loads_after: Mapping[int, BrokerLoad] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.moves)

    @property
    def bytes_to_copy(self) -> int:
        """The number of bytes that are copied between brokers."""
        return sum(move.bytes_to_copy for move in self.moves.values())

    def to_json(self) -> str:
        """Return the plan as a file for kafka-reassign-partitions, and for `from_json`."""
        partitions: list[dict[str, Any]] = []
        for tp, move in sorted(self.moves.items()):
            written: dict[str, Any] = {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(move.after),
            }
            if move.log_dirs:
                written["log_dirs"] = list(move.log_dirs)
            if move.before is not None:
                written["before"] = list(move.before)
            if move.size is not None:
                written["size"] = move.size
            partitions.append(written)
        data: dict[str, Any] = {"version": VERSION, "partitions": partitions}
        if self.loads_before or self.loads_after:
            data["brokers"] = {
                "before": _write_loads(self.loads_before),
                "after": _write_loads(self.loads_after),
            }
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str | bytes) -> ReassignmentPlan:
        """Return the plan in a file of `to_json`, or of kafka-reassign-partitions.

        Raises ArgumentValueError if the text is not such a file.
        """
        if not isinstance(text, str | bytes | bytearray):
            raise ArgumentTypeError(f"{text!r} is not the text of a plan. Pass a str or bytes.")
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentValueError(f"The plan is not JSON: {error}.") from error
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise ArgumentValueError(
                f"The plan is not an object with version {VERSION}. Pass a file of "
                "ReassignmentPlan.to_json or of kafka-reassign-partitions."
            )
        moves: dict[TopicPartition, PlannedMove] = {}
        for written in _require(data, "partitions", _is_list):
            tp, move = _read_move(written)
            if tp in moves:
                raise ArgumentValueError(f"The plan has partition {tp} twice. Name it once.")
            moves[tp] = move
        brokers = _require(data, "brokers", _is_object, {})
        before, after = (
            _read_loads(_require(brokers, name, _is_object, {})) for name in ("before", "after")
        )
        return cls(moves, before, after)


@public_in("aiokclient.admin")
@dataclass(frozen=True, slots=True)
class ReassignmentProgress:
    """The progress of a cluster with a plan.

    `complete` are the partitions whose replicas are those of the plan, in the directories that it
    names, and those that were deleted. `moving` are the partitions that are being moved there; a
    partition of which a broker copies a replica between its own directories has no brokers under
    `adding` and `removing`. `stopped` are all others: they were not begun, or their reassignment
    was cancelled or replaced by another one. A partition that has just been moved may be among them
    for a moment, until the broker that was asked knows that.

    `copied_bytes` is the number of bytes that the new replicas have, which may grow above
    `total_bytes`, those of the plan, while records are written.
    """

    complete: tuple[TopicPartition, ...]
    moving: Mapping[TopicPartition, PartitionReassignment]
    stopped: tuple[TopicPartition, ...]
    copied_bytes: int
    total_bytes: int

    @property
    def is_complete(self) -> bool:
        """Whether all partitions of the plan have been moved."""
        return not self.moving and not self.stopped


def _read_move(written: Any) -> tuple[TopicPartition, PlannedMove]:
    if not isinstance(written, dict):
        raise ArgumentValueError(f"{shortened(written)} in the plan is not a partition.")
    topic = as_name(_require(written, "topic", lambda value: isinstance(value, str)), TOPIC)
    partition = _require(written, "partition", _is_count)
    tp = TopicPartition(topic, partition)
    after = tuple(_require(written, "replicas", _is_replica_list))
    before = _require(written, "before", _is_replica_list, None)
    log_dirs = tuple(_require(written, "log_dirs", _is_text_list, ()))
    if log_dirs and len(log_dirs) != len(after):
        raise ArgumentValueError(
            f"The plan has {len(log_dirs)} log_dirs for the {len(after)} replicas of {tp}. Name "
            f"one for each, or {ANY_DIRECTORY!r}."
        )
    return tp, PlannedMove(
        after,
        None if before is None else tuple(before),
        _require(written, "size", _is_count, None),
        log_dirs,
    )


def _write_loads(loads: Mapping[int, BrokerLoad]) -> dict[str, dict[str, int]]:
    return {
        str(broker): {name: getattr(load, name) for name in LOAD_FIELDS}
        for broker, load in sorted(loads.items())
    }


def _read_loads(written: Mapping[str, Any]) -> dict[int, BrokerLoad]:
    loads: dict[int, BrokerLoad] = {}
    for broker, load in written.items():
        if not broker.isascii() or not broker.isdecimal() or not isinstance(load, dict):
            raise ArgumentValueError(f"The plan has no load for a broker {shortened(broker)}.")
        numbers = (_require(load, name, _is_count) for name in LOAD_FIELDS)
        loads[int(broker)] = BrokerLoad(*numbers)
    return loads


_MISSING: Final = object()


def _require(
    written: Mapping[str, Any], name: str, is_right: Callable[[Any], bool], default: Any = _MISSING
) -> Any:
    """Return a field of the file, or the default if the file lacks it.

    Raises ArgumentValueError for a value of a wrong form, and without a default also for none.
    """
    value = written.get(name, default)
    if value is default is not _MISSING:
        return default
    if value is _MISSING or not is_right(value):
        shown = "no" if value is _MISSING else f"{shortened(value)} as"
        raise ArgumentValueError(f"The plan has {shown} {name!r} in {shortened(written)}.")
    return value


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_replica_list(value: Any) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(map(_is_count, value)) and len(set(value)) == len(value)
