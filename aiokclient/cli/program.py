"""The list of commands, and running one of them."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from aiokclient import __version__
from aiokclient.cli.client_metrics import client_metrics
from aiokclient.cli.exit_codes import ExitCode, exit_code_of, one_line
from aiokclient.cli.output import Line, OutputError, Result, discard, write

NAME = "aiokclient"

app = typer.Typer(add_completion=False, rich_markup_mode=None)
app.command("client-metrics")(client_metrics)


def _show_version(wanted: bool) -> None:
    if wanted:
        write(Result([Line(f"{NAME} {__version__}")], None), as_json=False)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Write the log of the library to standard error.")
    ] = False,
) -> None:
    """Commands for Apache Kafka.

    The exit code is 0 for success, 1 if the cluster refused the request or could not be
    reached, and 2 for wrong arguments or a wrong properties file.
    """
    log = logging.getLogger(NAME)
    # On a terminal, the log shows what the command waits for. For a script, standard error must
    # have only the error. Without any handler, Python would write warnings to it.
    shown = sys.stderr is not None and (verbose or sys.stderr.isatty())
    log.addHandler(logging.StreamHandler() if shown else logging.NullHandler())
    if verbose:
        log.setLevel(logging.INFO)


def run(arguments: Sequence[str]) -> int:
    """Run a command, and return its exit code. An error is one line on standard error."""
    command = typer.main.get_command(app)
    try:
        # The options --help and --version end the program early, and return their own exit code.
        code = command.main(list(arguments), prog_name=NAME, standalone_mode=False)
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except Exception as error:
        text = one_line(error)
        if text is None:
            raise
        if isinstance(error, OSError | OutputError):
            discard()
        if sys.stderr is not None:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{NAME}: {text}\n")
                sys.stderr.flush()
        return exit_code_of(error)
    return code if isinstance(code, int) else ExitCode.SUCCESS
