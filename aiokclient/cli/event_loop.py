"""The import of asyncio by a command, without the module ssl if the command needs no TLS.

asyncio imports ssl if there is one, and works without it. The import takes half as long as the
start of the interpreter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import aiokclient.cli as cli

if TYPE_CHECKING:
    import argparse

SIGNS = ("ssl", "tls", "security")
"""Parts of the names or values of options, of which one is there in each configuration with TLS."""


def import_asyncio(given: argparse.Namespace) -> None:
    """Import asyncio for a command that connects with the options in `given`.

    In the process of another program, that program decides what asyncio finds.
    """
    modules: dict[str, Any] = sys.modules
    if not cli.owns_process or "ssl" in modules or "asyncio" in modules or _may_need_tls(given):
        return
    modules["ssl"] = None  # The import system takes it for a module that is not installed.
    try:
        import asyncio  # noqa: F401
    finally:
        del modules["ssl"]


def _may_need_tls(given: argparse.Namespace) -> bool:
    texts = (text.lower() for text in _read_configuration(given))
    return any(sign in text for text in texts for sign in SIGNS)


def _read_configuration(given: argparse.Namespace) -> Iterator[str]:
    """Yield all texts from which options of the client may come, and more."""
    from aiokclient.cli.profiles import profiles_path

    yield from given.X
    for name, value in os.environ.items():
        if name.startswith("AIOKCLIENT_"):
            yield f"{name}={value}"
    for path in (profiles_path(), *given.config):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read()
        except OSError:
            pass  # A missing file is an error later, if it is needed.
