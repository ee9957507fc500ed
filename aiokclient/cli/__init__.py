"""The command line: `aiokclient COMMAND`, which is also `python -m aiokclient COMMAND`.

A command is a function in a module of its own, and uses only the public API of the library:

    program          the list of commands, and running one of them
    client_metrics   a command, and the connection options that all commands share
    output           results as text or JSON, on standard output
    exit_codes       errors as one line on standard error, and the exit code for each kind of error

The command line needs the extra `cli`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]

_EXTRA = ("click", "rich", "typer")
"""The packages that the extra `cli` installs."""
_MISSING = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code. The default arguments are those of the process."""
    try:
        from aiokclient.cli.program import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(
            f"aiokclient: The command line needs the package {error.name}, which the extra cli "
            'installs: pip install "aiokclient[cli]"\n'
        )
        return _MISSING
