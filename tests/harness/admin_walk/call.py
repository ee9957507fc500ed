"""One call of a walk, and what all makers of calls share."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokclient.admin import Admin
from aiokclient.errors import KafkaError

from .model import BrokenModelError, Done, Effect, Key, Model, State, TopicState, describe_result

TOPICS = 10
"""The largest number of topics at a time."""


class CallItem(NamedTuple):
    """One item of a call: the thing that it concerns, and what may become of it."""

    key: Key
    effect: Effect
    check_value: Callable[[Any, State], bool] | None = None
    """Returns whether the result of a success fits the state of the thing afterwards."""


Judge = Callable[[Model, Any, bool], None]
"""A function that takes the result of a call into the model.

It gets the result, or the error that was raised; and whether anything was broken.
"""
Verify = Callable[[Admin, Any], Awaitable[str | None]]
"""A function that returns what contradicts the result of a call. It is called repeatedly."""


@dataclass
class AdminCall:
    """A call, as text and as a function, and what its result means."""

    text: str
    send: Callable[[Admin], Awaitable[Any]]
    judge: Judge
    keys: Sequence[Key] = ()
    verify: Verify | None = None
    needs_login: bool = False


@dataclass
class Surroundings:
    """The facts about the cluster that makers of calls know besides the model."""

    brokers: tuple[int, ...]
    stopped: set[int] = field(default_factory=set)
    log_dirs: Mapping[int, Sequence[str]] = field(default_factory=dict)
    reuses_names: bool = True
    """Whether a topic may get the name of one that was deleted."""
    deletes_credentials: bool = True
    learns_tokens_late: bool = False
    """Whether a controller may not find a token for a moment after it has created it."""
    lost_tokens: int = 0
    """Tokens that were perhaps created, although no client has received them."""
    must_remove_throttle: bool = False


class CallMaker:
    """A maker of random calls. Its methods return a call, or None if there is nothing to change."""

    def __init__(self, rng: random.Random, model: Model, around: Surroundings) -> None:
        self.rng, self.model, self.around = rng, model, around

    def list_makers(self) -> Iterable[tuple[Callable[[], AdminCall | None], int]]:
        """Return the methods that make calls, with their weights."""
        raise NotImplementedError

    def choose_key(self, kind: str) -> Key | None:
        """Return a thing that may exist and has no uncertain result."""
        keys = [each for each in self.model.list_keys(kind, existing=True) if self.is_settled(each)]
        return self.rng.choice(keys) if keys else None

    def choose_topic(self) -> tuple[str, TopicState] | None:
        """Return a topic that exists, unless an earlier result leaves that open."""
        key = self.choose_key("topic")
        state = None if key is None else self.model.get_state(key)
        return None if key is None or state is None else (key[1], state)

    def list_topic_names(self) -> list[str]:
        """Return the names of topics that exist or may be created."""
        names = []
        for number in range(TOPICS):
            name, generation = f"topic-{number}", 1
            if not self.around.reuses_names:
                known = self.model.list_keys("topic")
                while ("topic", name) in known and self.model.list_states(("topic", name)) == {
                    None
                }:
                    generation += 1
                    name = f"topic-{number}-{generation}"
            names.append(name)
        return names

    def is_settled(self, key: Key) -> bool:
        return key not in self.model.uncertain

    def has_chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def judge_items(text: str, items: Mapping[Any, CallItem]) -> Judge:
    """Return a judge for a call that returns `Results`."""

    def judge(model: Model, result: Any, disturbed: bool) -> None:
        for item, (key, effect, check_value) in items.items():
            each = result if isinstance(result, KafkaError) else result[item]
            judge_item(model, text, key, effect, each, disturbed, check_value)

    return judge


def judge_item(
    model: Model,
    text: str,
    key: Key,
    effect: Effect,
    result: Any,
    disturbed: bool,
    check_value: Callable[[Any, State], bool] | None = None,
) -> str:
    meaning = model.apply_result(key, effect, result, disturbed, text)
    if meaning == "done" and check_value is not None:
        states = model.list_states(key)
        if not any(check_value(result, state) for state in states):
            raise BrokenModelError(
                f"{text} returned {result} for {key}, which is then {states}."
                f"{model.describe_journal(key)}"
            )
    return meaning


def keep(state: State) -> list[Done]:
    """Return the outcome of a call that changes nothing."""
    return [Done(state)]


def judge_unchanged(text: str, *allowed: type[KafkaError]) -> Judge:
    """Return a judge for a call that changes nothing, and may be refused with these errors."""

    def judge(model: Model, result: Any, disturbed: bool) -> None:
        if not isinstance(result, KafkaError) or isinstance(result, allowed):
            return
        if not (disturbed and result.retriable):
            raise BrokenModelError(f"{text} returned {describe_result(result)}")

    return judge
