"""Named tuples behave as those of the standard library, whose twins are beside them here."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any

import pytest

from aiokclient.types.named_tuple import NamedTuple


class Ours(NamedTuple):
    """A position."""

    topic: str
    partition: int = 3
    headers: typing.Sequence[tuple[str, bytes]] = ()

    @property
    def text(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __bool__(self) -> bool:
        return self.__class__ is __class__  # type: ignore[name-defined]


class Theirs(typing.NamedTuple):
    """A position."""

    topic: str
    partition: int = 3
    headers: typing.Sequence[tuple[str, bytes]] = ()


BOTH = pytest.mark.parametrize("owner", [Ours, Theirs])
UNDOCUMENTED: Any = type(NamedTuple)("Empty", (NamedTuple,), {"__qualname__": "Empty"})


@BOTH
def test_a_named_tuple_is_made_by_position_and_by_name(owner: Any) -> None:
    made = owner("orders", headers=[])
    assert made == ("orders", 3, []) == (made.topic, made.partition, made.headers)
    assert repr(made) == f"{owner.__name__}(topic='orders', partition=3, headers=[])"
    assert owner._make(["orders", 3, []]) == made
    assert type(owner._make(made)) is owner
    assert made._replace(partition=4) == ("orders", 4, [])
    assert made._asdict() == {"topic": "orders", "partition": 3, "headers": []}
    match made:
        case owner(topic, 3):
            assert topic == "orders"
        case _:
            pytest.fail("It does not match its fields.")


@BOTH
@pytest.mark.parametrize(
    "call",
    [
        lambda owner: owner(),
        lambda owner: owner(1, 2, 3, 4),
        lambda owner: owner("orders", offset=3),
        lambda owner: owner._make([1]),
    ],
)
def test_a_named_tuple_refuses_wrong_arguments(owner: Any, call: Any) -> None:
    with pytest.raises(TypeError):
        call(owner)


def test_a_replacement_of_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match=r"\['offset'\]"):
        Ours("orders")._replace(offset=3)  # type: ignore[call-arg]


@BOTH
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_named_tuple_is_copied_and_pickled(owner: Any, protocol: int) -> None:
    made = owner("orders", headers=[("a", b"")])
    for each in (pickle.loads(pickle.dumps(made, protocol)), copy.copy(made), copy.deepcopy(made)):
        assert type(each) is owner
        assert each == made


def test_a_class_tells_the_same_as_one_of_the_standard_library() -> None:
    for name in ("_fields", "_field_defaults", "__match_args__", "__bases__", "__doc__"):
        assert getattr(Ours, name) == getattr(Theirs, name), name
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert list(inspect.signature(Ours).parameters) == list(inspect.signature(Theirs).parameters)
    assert inspect.signature(Ours).parameters["partition"].default == 3
    assert set(dir(Theirs)) - set(dir(Ours)) == set()
    assert UNDOCUMENTED.__doc__ == typing.NamedTuple("Empty", []).__doc__
    assert UNDOCUMENTED() == ()


def test_a_class_has_methods_of_its_own_and_no_attributes() -> None:
    assert Ours("orders").text == "orders-3"
    assert Ours("orders")
    with pytest.raises(AttributeError):
        Ours("orders").offset = 3  # type: ignore[attr-defined]
