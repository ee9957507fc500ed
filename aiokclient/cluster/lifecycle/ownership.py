"""Ownership of a client: only references of the program, not background tasks, keep it alive.

A client, producer, consumer, or group member that the program drops without `close()` must end.
Otherwise, its group would wait for a reader that does not exist. Therefore background tasks hold
only weak references to it, and to the objects of the program that may refer to it (listeners and
callbacks). When the program drops its last reference, the object is revived and closed, as if an
exception had left `async with`, and a ResourceWarning names it.

Python clears weak references before it calls the finalizers of a cycle. Therefore each weak
reference is in a separate object (`Anchor`). A revived object sets its weak references again.
"""

from __future__ import annotations

import asyncio
import copy
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

CALLABLES = (
    "key_deserializer",
    "key_serializer",
    "on_acknowledge_error",
    "on_delivery_error",
    "on_record_error",
    "partitioner",
    "value_deserializer",
    "value_serializer",
)
"""Options with functions and objects of the application, which may refer to the client."""

C = TypeVar("C")
T = TypeVar("T")


class Anchor(Generic[T]):
    """A weak reference to an object, which becomes a strong one while the object is closed."""

    __slots__ = ("get",)

    get: Callable[[], T | None]
    """Return the object, or None if it no longer exists."""

    def __init__(self, to: T) -> None:
        self.release_object(to)

    def hold_object(self, to: T) -> None:
        """Keep the object alive from now on."""
        self.get = lambda: to

    def release_object(self, to: T) -> None:
        """Stop keeping the object alive."""
        try:
            self.get = weakref.ref(to)
        except TypeError:
            self.hold_object(to)  # Its class has slots, but none for weak references.


class Weakly:
    """An attribute with a weak reference. Its value is None once the object no longer exists."""

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
    """Let the event loop close an object that has no references left, with a ResourceWarning.

    Synchronous. Finalizers call it, in any thread and at any moment. `close` starts the close.
    """
    try:
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(close)
    except RuntimeError:
        pass  # The loop was closed in the meantime. Its transports close their sockets.
    finally:
        text = f"{one!r} was dropped without close(). Use `async with`, or await its close()."
        # With `source`, a recorded warning would keep the object alive.
        warnings.warn(text, ResourceWarning, stacklevel=2)


def retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve the error of a task that is not awaited, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
