"""The assignors that the option `partition_assignment_strategy` selects."""

from __future__ import annotations

from collections.abc import Iterable

from aiokclient.consumer.assignors.assignor import Assignor
from aiokclient.consumer.assignors.co_partitioned import CoPartitioned
from aiokclient.consumer.assignors.range import Range
from aiokclient.consumer.assignors.redundant import Redundant
from aiokclient.consumer.assignors.round_robin import RoundRobin
from aiokclient.consumer.assignors.sticky import CooperativeSticky, Sticky
from aiokclient.errors import ConfigError
from aiokclient.types import AssignorLike, shortened, text_problem

__all__ = ["BUILT_IN", "make_assignors"]

BUILT_IN: dict[str, type[Assignor]] = {
    kind.name: kind for kind in (Range, RoundRobin, Sticky, CooperativeSticky)
}
"""Kafka's assignors, by name. A test compares them with the option's values."""
NAMED: dict[str, type[Assignor]] = {
    **BUILT_IN,
    **{kind.name: kind for kind in (Redundant, CoPartitioned)},
}
"""The assignors that can be selected by name."""


def make_assignors(
    strategies: Iterable[str | type[AssignorLike] | AssignorLike],
) -> tuple[Assignor, ...]:
    """Return one assignor for each strategy, in the same order of preference.

    Names and classes are instantiated for this consumer. Raises ConfigError for a value that is
    not an assignor, for a class whose constructor requires arguments, and if two assignors have
    the same name.
    """
    made: dict[str, Assignor] = {}
    for strategy in strategies:
        assignor = _made(strategy)
        if not isinstance(assignor.name, str) or not assignor.name:
            raise ConfigError(
                f"partition_assignment_strategy: the name of {_called(strategy)} is "
                f"{assignor.name!r}. It must be a string that is not empty."
            )
        if problem := text_problem(assignor.name):
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} has the name "
                f"{shortened(assignor.name)}. {problem}"
            )
        if assignor.name in made:
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} has the name "
                f"{assignor.name!r}, as does another one in the list. Each name may occur once."
            )
        made[assignor.name] = assignor
    return tuple(made.values())


def _made(strategy: str | type[AssignorLike] | AssignorLike) -> Assignor:
    made: object = strategy
    if isinstance(strategy, str):
        made = NAMED[strategy]() if strategy in NAMED else None
    elif isinstance(strategy, type):
        try:
            made = strategy()
        except TypeError as error:
            raise ConfigError(
                f"partition_assignment_strategy: {_called(strategy)} cannot be made without "
                f"arguments ({error}). Give an instance of it instead of the class."
            ) from error
    if not isinstance(made, Assignor):
        raise ConfigError(
            f"partition_assignment_strategy: {_called(strategy)} is not an assignor. Use one of "
            f"{', '.join(map(repr, NAMED))}, a class derived from aiokclient.Assignor, or an "
            "instance of one."
        )
    return made


def _called(strategy: object) -> str:
    if isinstance(strategy, str):
        return repr(strategy)
    return getattr(strategy, "__qualname__", type(strategy).__qualname__)
