"""Ownership of a client: the program that holds it keeps it alive, nothing in the background does.

A client, producer, consumer or group member that the program drops without `close()` must end: its
group would wait for a reader that does not exist. So what runs in the background holds only weak
references to it, and to what the program gave it that may hold it in turn (listeners, callbacks).
When the last reference of the program goes, the object is revived for as long as its close takes,
as if `async with` had been left by an exception, and a ResourceWarning names it.

Python clears weak references before it calls the finalizers of a cycle, so they are objects of
their own here (`Anchor`), which the revived object sets again.
"""

from __future__ import annotations

import asyncio
import copy
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Anchor", "dropped", "Weakly", "for_background", "retrieve"]

CALLABLES = (
    "key_deserializer",
    "key_serializer",
    "on_delivery_error",
    "on_record_error",
    "partitioner",
    "value_deserializer",
    "value_serializer",
)
"""Options that hold functions and objects of the application, which may hold the client."""

C = TypeVar("C")
T = TypeVar("T")


class Anchor(Generic[T]):
    """A weak reference to an object, which can be made a strong one for the time of its close."""

    __slots__ = ("_get", "_held")

    def __init__(self, to: T) -> None:
        self._held: T | None = None
        self._get: Callable[[], T | None] = lambda: None
        self.let_go(to)

    def get(self) -> T | None:
        """Return the object, or None if it is gone."""
        return self._get() if self._held is None else self._held

    def hold(self, to: T) -> None:
        """Keep the object alive from now on."""
        self._held = to

    def let_go(self, to: T) -> None:
        """Do not keep the object alive any more."""
        self._held = None
        try:
            self._get = weakref.ref(to)
        except TypeError:
            self._held = to  # It has slots, and none for weak references.

    def call(self, name: str = "__call__") -> Callable[..., Any]:
        """Return a function that calls this method of the object, if it is not gone."""

        def call(*args: Any, **named: Any) -> Any:
            one = self.get()
            return None if one is None else getattr(one, name)(*args, **named)

        return call


class Weakly:
    """An attribute that refers to an object without keeping it alive; None once it is gone."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name.lstrip('_')}_anchor"

    def __get__(self, one: Any, kind: type | None = None) -> Any:
        anchor = getattr(one, self._name, None)
        return None if anchor is None else anchor.get()

    def __set__(self, one: Any, value: Any) -> None:
        setattr(one, self._name, None if value is None else Anchor(value))


def for_background(config: C) -> C:
    """Return the options without the functions and objects of the application."""
    bare = copy.copy(config)
    for name in CALLABLES:
        if getattr(bare, name, None) is not None:
            object.__setattr__(bare, name, None)
    strategies = getattr(bare, "partition_assignment_strategy", ())
    if any(not isinstance(each, (str, type)) for each in strategies):
        kept = tuple(each if isinstance(each, (str, type)) else Anchor(each) for each in strategies)
        object.__setattr__(bare, "partition_assignment_strategy", kept)
    return bare


def dropped(one: object, loop: asyncio.AbstractEventLoop | None, close: Callable[[], None]) -> None:
    """Have an object to which no reference is left closed in its loop, and warn of it.

    Synchronous; called by finalizers, in any thread and at any moment. `close` begins the close.
    """
    try:
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(close)
    except RuntimeError:
        pass  # The loop was closed in the meantime; its transports close their sockets themselves.
    finally:
        text = f"{one!r} was dropped without close(). Use `async with`, or await its close()."
        # Without `source`, through which a recorded warning would keep the object alive.
        warnings.warn(text, ResourceWarning, stacklevel=2)


def retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a task that is not awaited, so that the loop does not log it."""
    if not task.cancelled():
        task.exception()
