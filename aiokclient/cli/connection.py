"""The connection options, which all commands have, and the admin client that is made from them.

A command has the options as parameters of the types `BootstrapServer` and `CommandConfig`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from aiokclient import Admin

__all__ = ["BootstrapServer", "CommandConfig", "use_admin"]

R = TypeVar("R")

BootstrapServer = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        metavar="HOST:PORT[,...]",
        help="Brokers to connect to first. They name all others.",
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        help="A Java properties file with options of the admin client, such as those for TLS and "
        "logins.",
    ),
]


def use_admin(
    bootstrap_server: str, command_config: Path | None, call: Callable[[Admin], Awaitable[R]]
) -> R:
    """Connect an admin client, and return the result of a call with it.

    Raises ConfigError for options that cannot be used, and the error of connecting or of the call.
    """
    # A command ends too soon to push metrics.
    options: dict[str, Any] = {"bootstrap_servers": bootstrap_server, "enable_metrics_push": False}

    async def connect() -> R:
        async with Admin.from_properties(command_config or {}, **options) as admin:
            return await call(admin)

    return asyncio.run(connect())
