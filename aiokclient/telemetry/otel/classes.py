"""The replacement of methods of one object.

An instrumented object gets a class of its own: a subclass of its former class, in which the traced
methods replace the original ones. Python finds these methods like any others, including special
methods such as `__aiter__`, and other objects are not affected. isinstance(), repr(), and
references to the object work as before. `undo` gives the object its former class again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from types import new_class
from typing import Any

MARK = "_is_instrumented_by_aiokclient"


def is_instrumented(thing: object) -> bool:
    """Return whether the methods of an object are replaced."""
    return hasattr(type(thing), MARK)


def with_methods(thing: object, methods: Mapping[str, Callable[..., Any]]) -> Callable[[], None]:
    """Replace methods of one object. Return an idempotent function that undoes this."""
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
