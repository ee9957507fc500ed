"""Frozen classes behave as those of `dataclasses`, whose twins are beside them here."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import typing
from collections.abc import Mapping
from typing import Any

import pytest

from aiokclient.types.frozen import fresh, frozen


@frozen
class Ours:
    """A topic."""

    name: str
    partitions: int | None = None
    configs: Mapping[str, object] = fresh(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.name}-{self.partitions}"


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """A topic."""

    name: str
    partitions: int | None = None
    configs: Mapping[str, object] = dataclasses.field(default_factory=dict)

    @property
    def text(self) -> str:
        return f"{self.name}-{self.partitions}"


@frozen
class Empty:
    """A class without fields."""


BOTH = pytest.mark.parametrize("owner", [Ours, Theirs])


@BOTH
def test_an_instance_is_made_by_position_and_by_name(owner: Any) -> None:
    made = owner("orders", configs={"a": 1})
    assert (made.name, made.partitions, made.configs) == ("orders", None, {"a": 1})
    assert made == owner("orders", None, {"a": 1})
    assert made != owner("orders")
    assert made != ("orders", None, {"a": 1})
    assert made.text == "orders-None"
    assert repr(made) == f"{owner.__name__}(name='orders', partitions=None, configs={{'a': 1}})"
    assert owner("a").configs is not owner("a").configs
    match made:
        case owner(name, None):
            assert name == "orders"
        case _:
            pytest.fail("It does not match its fields.")


@BOTH
@pytest.mark.parametrize(
    ("args", "named"), [((), {}), (("a", 1, {}, 4), {}), (("a",), {"name": "b"}), ((), {"x": 1})]
)
def test_wrong_arguments_are_type_errors(owner: Any, args: Any, named: Any) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        owner(*args, **named)


@BOTH
def test_an_instance_cannot_be_changed(owner: Any) -> None:
    made = owner("orders")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        made.name = "other"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del made.name
    assert not hasattr(made, "__dict__")


@BOTH
def test_an_instance_is_hashed_by_its_fields(owner: Any) -> None:
    assert hash(owner("a", 1, ())) == hash(owner("a", 1, ()))
    with pytest.raises(TypeError, match="unhashable"):
        hash(owner("a"))


@BOTH
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_instance_is_copied_and_pickled(owner: Any, protocol: int) -> None:
    made = owner("orders", 3, {"a": 1})
    for again in (pickle.loads(pickle.dumps(made, protocol)), copy.deepcopy(made), copy.copy(made)):
        assert again == made
    assert made.__getstate__() == ["orders", 3, {"a": 1}]


@BOTH
def test_the_functions_of_dataclasses_work(owner: Any) -> None:
    make: Any = owner
    made = make("orders", 3)
    assert dataclasses.is_dataclass(owner)
    assert dataclasses.is_dataclass(made)
    assert dataclasses.asdict(made) == {"name": "orders", "partitions": 3, "configs": {}}
    assert dataclasses.replace(made, partitions=4) == make("orders", 4)
    fields = {each.name: each for each in dataclasses.fields(owner)}
    assert list(fields) == ["name", "partitions", "configs"]
    assert fields["name"].default is dataclasses.MISSING
    assert fields["partitions"].default is None
    assert fields["configs"].default_factory is dict
    assert owner.__dataclass_params__.frozen


def test_the_signature_and_the_annotations_are_the_same() -> None:
    assert str(inspect.signature(Ours)) == str(inspect.signature(Theirs))
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert Ours.__match_args__ == Theirs.__match_args__  # type: ignore[attr-defined]
    assert Ours.__doc__ == Theirs.__doc__


def test_a_class_without_fields_has_equal_instances() -> None:
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"
