"""Public classes belong to the packages that export them, and pickles of earlier versions load."""

from __future__ import annotations

import inspect
import json
import pickle
import typing
from importlib import import_module
from pathlib import Path

import pytest
from public_packages import PUBLIC_PACKAGES

PICKLES: dict[str, str] = json.loads(Path(__file__).with_name("pickles.json").read_text())
"""Pickles in hex, by the expression that makes the same value.

They were made when the `__module__` of a class was the module that defines it. Add pickles to the
file, but do not write the others again.
"""

NAMES = {
    name.rpartition(".")[2]: import_module(name)
    for name in PUBLIC_PACKAGES
    if not name.startswith("aiokclient.spark")
}
ADAPTERS = "aiokclient.adapters."
OF_TWINS = ("aiokclient.types", "aiokclient._native.", "aiokclient.producer._pure.")
"""Modules of classes of which there is a native and a pure one. The native one names it in C."""


def public_classes() -> list[type]:
    values = [getattr(package, name) for package in NAMES.values() for name in package.__all__]
    classes = dict.fromkeys(value for value in values if inspect.isclass(value))
    return [each for each in classes if each.__module__.startswith("aiokclient")]


@pytest.mark.parametrize("expression", PICKLES)
def test_a_pickle_of_an_earlier_version_is_the_same_value(expression: str) -> None:
    loaded = pickle.loads(bytes.fromhex(PICKLES[expression]))
    made = eval(expression, dict(NAMES))
    assert type(loaded) is type(made)
    assert repr(loaded) == repr(made)


@pytest.mark.parametrize("owner", public_classes(), ids=lambda owner: owner.__qualname__)
def test_a_public_class_belongs_to_the_package_that_exports_it(owner: type) -> None:
    if owner.__module__.startswith(OF_TWINS):
        return
    # The modules of an adapter have the paths of another client, which programs import, too.
    assert owner.__module__ in PUBLIC_PACKAGES or owner.__module__.startswith(ADAPTERS)
    assert getattr(import_module(owner.__module__), owner.__name__) is owner


@pytest.mark.parametrize("owner", public_classes(), ids=lambda owner: owner.__qualname__)
def test_annotations_of_a_public_class_can_be_evaluated(owner: type) -> None:
    if hasattr(owner, "__dataclass_fields__") or hasattr(owner, "_fields"):
        typing.get_type_hints(owner)
