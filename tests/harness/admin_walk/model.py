"""The states in which a cluster may be after the results of admin calls.

The model has, for each thing of the cluster, the states in which it may be: one if all results were
definite, and several after a result that leaves it open, such as a timeout. A success means that
the change was made. A definite refusal means that it was not, unless an earlier attempt of the same
call made it and its response was lost: then the refusal is the one that the changed state gives. An
uncertain result means either. A result that no possible state explains breaks the model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from aiokclient.errors import KafkaError

Key: TypeAlias = tuple[Any, ...]
"""The kind of a thing, and its name."""
State: TypeAlias = Any
"""The state of a thing, or None if it does not exist."""


class Done(NamedTuple):
    """The call succeeds, and the thing has this state afterwards."""

    state: State


class Refused(NamedTuple):
    """The call is refused with one of these errors, and changes nothing."""

    errors: tuple[type[KafkaError], ...]


Effect: TypeAlias = Callable[[State], Sequence[Done | Refused]]
"""A function from the state of a thing to the possible outcomes of a call for it."""


def refused(*errors: type[KafkaError]) -> list[Done | Refused]:
    return [Refused(errors)]


class PartitionState(NamedTuple):
    """A partition: its replicas and its offsets. A `start` below 0 is unknown.

    `replicas` are the ids of brokers, the preferred leader first; or a frozenset if their order is
    unknown, or their number. `formers` are the replicas to which a cancellation may lead back.
    """

    replicas: Any
    start: int = 0
    end: int = 0
    formers: tuple[Any, ...] = ()

    @property
    def replica_count(self) -> int:
        return self.replicas if isinstance(self.replicas, int) else len(self.replicas)

    def matches(self, actual: PartitionState) -> bool:
        if isinstance(self.replicas, int):
            same = self.replicas == actual.replica_count
        elif isinstance(self.replicas, frozenset):
            same = self.replicas == set(actual.replicas)
        else:
            same = self.replicas == actual.replicas
        return same and self.start in (-1, actual.start) and self.end == actual.end


class TopicState(NamedTuple):
    """A topic: its partitions, and the options that were set for it."""

    partitions: tuple[PartitionState, ...]
    configs: frozenset[tuple[str, str]] = frozenset()

    def matches(self, actual: TopicState) -> bool:
        pairs = zip(self.partitions, actual.partitions, strict=False)
        return (
            len(self.partitions) == len(actual.partitions)
            and self.configs == actual.configs
            and all(expected.matches(found) for expected, found in pairs)
        )


def is_match(expected: State, actual: State) -> bool:
    if isinstance(expected, TopicState) and isinstance(actual, TopicState):
        return expected.matches(actual)
    return bool(expected == actual)


class BrokenModelError(AssertionError):
    """An error raised if a result, or the state of the cluster, contradicts earlier results."""


class Model:
    """The possible states of all things of the cluster."""

    def __init__(self) -> None:
        self._possible: dict[Key, frozenset[Hashable]] = {}
        self._journal: dict[Key, list[str]] = {}
        self.uncertain: set[Key] = set()
        """Things with an uncertain result. No call changes them until they were compared: a broker
        may carry out a request that was given up, after later requests.
        """

    def list_states(self, key: Key) -> frozenset[Hashable]:
        return self._possible.get(key, frozenset([None]))

    def get_state(self, key: Key) -> State:
        """Return one of the possible states, the same for equal seeds."""
        return min(self.list_states(key), key=repr)

    def list_keys(self, kind: str, *, existing: bool = False) -> list[Key]:
        """Return the things of a kind, sorted. With `existing`, only those that may exist."""
        keys = [key for key in self._possible if key[0] == kind]
        if existing:
            keys = [key for key in keys if self.list_states(key) != {None}]
        return sorted(keys, key=repr)

    def apply_result(
        self, key: Key, effect: Effect, result: Any, disturbed: bool, call: str
    ) -> Literal["done", "refused", "uncertain"]:
        """Take in the result of a call for one thing: an error, or anything else for success.

        `disturbed` says whether anything failed during the call, or had failed before. Otherwise
        the result must be definite.
        """
        possible = self.list_states(key)
        outcomes = {state: effect(state) for state in possible}
        first = _list_done(outcomes)
        again = {state: effect(state) for state in first}
        meaning: Literal["done", "refused", "uncertain"] = "done"
        if not isinstance(result, KafkaError):
            after = set(first)
            if disturbed:
                after |= _list_done(again)
        else:
            after = {state for state, each in outcomes.items() if _can_refuse(each, result)}
            if disturbed:
                after |= {state for state, each in again.items() if _can_refuse(each, result)}
            meaning = "refused"
            if not after and result.retriable and disturbed:
                after = {*possible, *first}
                meaning = "uncertain"
                self.uncertain.add(key)
        self.note(key, f"{call}: {describe_result(result)}")
        if not after:
            raise BrokenModelError(
                f"{call} returned {describe_result(result)} for {key}, "
                f"{'after faults' if disturbed else 'without any fault'}, which may be in these "
                f"states: {describe_states(possible)}{self.describe_journal(key)}"
            )
        self._possible[key] = frozenset(after)
        return meaning

    def forget(self, key: Key, disturbed: bool, call: str) -> None:
        """Take in that a thing has vanished, or after faults may vanish later."""
        self.note(key, call)
        if disturbed:
            self._possible[key] = self.list_states(key) | {None}
            self.uncertain.add(key)
        else:
            self._possible[key] = frozenset([None])

    def note(self, key: Key, event: str) -> None:
        self._journal.setdefault(key, []).append(event)

    def describe_journal(self, key: Key) -> str:
        return "".join(f"\n    {line}" for line in self._journal.get(key, ())[-12:])

    def compare(self, actual: Mapping[Key, State]) -> list[str]:
        """Return a description of each thing whose actual state is none of the possible ones."""
        found = []
        for key in sorted({*self._possible, *actual}, key=repr):
            state = actual.get(key)
            if not any(is_match(each, state) for each in self.list_states(key)):
                found.append(
                    f"{key}\n  is {describe_states([state])}\n  and not "
                    f"{describe_states(self.list_states(key))}{self.describe_journal(key)}"
                )
        return found

    def lose_start(self, key: Key, index: int) -> None:
        """Take in that the start of a partition is unknown until the next comparison."""

        def lose(state: State) -> State:
            if state is None or index >= len(state.partitions):
                return state
            parts = list(state.partitions)
            parts[index] = parts[index]._replace(start=-1)
            return state._replace(partitions=tuple(parts))

        self._possible[key] = frozenset(map(lose, self.list_states(key)))
        self.uncertain.add(key)

    def change(self, key: Key, state: State) -> None:
        """Take in a change that was not made by a call of the walk."""
        self._possible[key] = frozenset([state])

    def settle(self, actual: Mapping[Key, State]) -> None:
        """Make the actual states the only possible ones."""
        for key in {*self._possible, *actual}:
            self._possible[key] = frozenset([actual.get(key)])
            self._journal.pop(key, None)
        self.uncertain.clear()


def _list_done(outcomes: Mapping[State, Iterable[Done | Refused]]) -> set[State]:
    return {each.state for some in outcomes.values() for each in some if isinstance(each, Done)}


def _can_refuse(outcomes: Iterable[Done | Refused], error: KafkaError) -> bool:
    return any(isinstance(each, Refused) and isinstance(error, each.errors) for each in outcomes)


def describe_result(result: Any) -> str:
    return f"{type(result).__name__}: {result}" if isinstance(result, KafkaError) else "success"


def describe_states(states: Iterable[State]) -> str:
    return " or ".join(sorted(map(str, states)))
