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

The modules of `COMPILED` exist once, in Python, and are compiled from that source: a .pxd file
beside it declares the types of their classes' attributes. The compiled forms run if the native
modules are in use. In a checkout, all run from their sources while one has changed since it was
compiled, so that an edit takes effect at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from typing import Any, TypeVar

__all__ = [
    "BUILT",
    "COMPILED",
    "EXTENSIONS",
    "WANTED",
    "are_built",
    "are_sources_newer",
    "choose_modules",
    "chosen",
    "in_use",
    "native_import",
    "note_pure_modules",
    "twin",
]

T = TypeVar("T")

EXTENSIONS = ("ground", "record", "producer", "consumer")
"""The extension modules in this package; each imports only earlier ones."""

COMPILED = (
    "producer.batching.accumulator",
    "producer.batching.batch",
    "producer.batching.meters",
    "producer.batching.partitioner",
    "producer.batching.producer_ids",
    "producer.batching.queue",
    "producer.batching.sequences",
    "producer.sending.sender",
)
"""The modules in Python that are compiled from their own sources; all are imported compiled, or
none."""


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


@cache
def are_sources_newer() -> bool:
    """Return whether the modules of `COMPILED` must run from their sources.

    All do if one was not compiled, or was compiled before its source, its declarations, or those of
    the native classes changed. Only a checkout has declarations, so an installed package that has
    the modules always runs them.
    """
    package = os.path.dirname(os.path.dirname(__file__))
    native = os.path.join(package, "_native")
    bases = [os.path.join(native, name) for name in os.listdir(native) if name.endswith(".pxd")]
    for name in COMPILED:
        path = os.path.join(package, *name.split("."))
        built = [each for each in map(path.__add__, EXTENSION_SUFFIXES) if os.path.exists(each)]
        if not built:
            return True
        declarations = f"{path}.pxd"
        if os.path.exists(declarations):
            changed = max(map(os.path.getmtime, (f"{path}.py", declarations, *bases)))
            if changed > os.path.getmtime(built[0]):
                return True
    return False


def choose_modules(folders: list[str]) -> None:
    """Import the sources of the modules in these folders unless their compiled forms are in use.

    A package with modules of `COMPILED` calls this with its `__path__`.
    """
    if in_use() and not are_sources_newer():
        return
    for folder in folders:
        if any(name.endswith(tuple(EXTENSION_SUFFIXES)) for name in os.listdir(folder)):
            sys.path_importer_cache[folder] = FileFinder(
                folder,
                (SourceFileLoader, SOURCE_SUFFIXES),
                (SourcelessFileLoader, BYTECODE_SUFFIXES),
            )


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
