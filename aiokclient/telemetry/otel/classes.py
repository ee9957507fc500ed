"""The methods of one object, replaced.

An instrumented object gets a class of its own, a subclass of the former one in which the traced
methods replace the original ones. So Python finds them where it finds all others, special methods
such as `__aiter__` included, and nothing is looked up or checked in any other object. The object
stays what it is for isinstance(), repr(), and all who refer to it. `undo` gives it back its class.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from types import new_class
from typing import Any

__all__ = ["MARK", "is_instrumented", "with_methods"]

MARK = "_is_instrumented_by_aiokclient"


def is_instrumented(thing: object) -> bool:
    """Return whether the methods of an object are replaced."""
    return hasattr(type(thing), MARK)


def with_methods(thing: object, methods: Mapping[str, Callable[..., Any]]) -> Callable[[], None]:
    """Replace methods of one object. Return a function that undoes it, and may be called again."""
    kind = type(thing)
    attributes = {
        "__doc__": kind.__doc__,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__slots__": (),
        MARK: True,
    }
    body = {**attributes, **methods}
    made = new_class(kind.__name__, (kind,), exec_body=lambda namespace: namespace.update(body))
    thing.__class__ = made
    found = weakref.ref(thing)

    def undo() -> None:
        instrumented = found()
        if instrumented is not None and type(instrumented) is made:
            instrumented.__class__ = kind

    return undo
