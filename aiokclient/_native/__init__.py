"""The choice between native code and Python.

Some classes and functions exist twice: in Python, and in Cython, which is faster. The decorator
`twin` replaces the Python one by the native one:

    @twin("record")
    def murmur2(data: bytes) -> int:
        ...  # in Python

Either all native twins are in use or none. They are in use if every extension module was built,
unless the environment variable `AIOKCLIENT_PURE` is 1.

Where the Python twins are modules of their own, only those in use are imported:

    if TYPE_CHECKING or not in_use():
        from aiokclient.record._pure.walk import walk
    else:
        with native_import("record"):
            from aiokclient._native.record import walk

A value that depends on the speed of the implementation in use comes from `chosen`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any, TypeVar

__all__ = [
    "BUILT",
    "EXTENSIONS",
    "WANTED",
    "are_built",
    "chosen",
    "in_use",
    "native_import",
    "note_pure_modules",
    "twin",
]

T = TypeVar("T")

EXTENSIONS = ("ground", "record", "producer", "consumer")
"""The extension modules in this package; each imports only earlier ones."""


def are_built(folder: str) -> bool:
    """Return whether a folder has all extension modules for this interpreter."""
    files = set(os.listdir(folder))
    return all(
        any(f"{name}{suffix}" in files for suffix in EXTENSION_SUFFIXES) for name in EXTENSIONS
    )


BUILT = are_built(os.path.dirname(__file__))
WANTED = os.environ.get("AIOKCLIENT_PURE", "0") in ("", "0")


def in_use() -> bool:
    """Return whether the native modules are in use."""
    return BUILT and WANTED


_noted: list[bool] = []


def note_pure_modules() -> bool:
    """Return True once in a process that runs the pure modules because no others are compiled."""
    if BUILT or not WANTED or _noted:
        return False
    _noted.append(True)
    return True


def twin(name: str) -> Callable[[T], T]:
    """Return a decorator that replaces a class or a function by its native twin.

    If the native modules are not in use, it changes nothing.

    `name` is the extension module in which the twin has the same name. Raises ImportError if that
    module cannot be imported, or was built from older sources.
    """
    if not in_use():
        return _keep
    with native_import(name):
        native = import_module(f"{__name__}.{name}")

    def replace(pure: Any) -> Any:
        with native_import(name):
            found = getattr(native, pure.__name__)
        return found

    return replace


def chosen(*, native: T, pure: T) -> T:
    """Return the value for the implementation that is in use."""
    return native if in_use() else pure


@contextmanager
def native_import(name: str) -> Iterator[None]:
    """Run an import from the extension module `name`. If it fails, raise one ImportError.

    That error says that the module cannot be imported, or was built from older sources.
    """
    try:
        yield
    except (ImportError, ValueError, AttributeError) as error:
        raise ImportError(
            f"The native module {name!r} of aiokclient cannot be used: {error}. Install aiokclient "
            "again (in a checkout, run `make native`), or set AIOKCLIENT_PURE=1 to run in Python.",
            name=f"{__name__}.{name}",
        ) from error


def _keep(pure: T) -> T:
    return pure
