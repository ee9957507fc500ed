"""The command line: `aiokclient NOUN VERB`, which is also `python -m aiokclient NOUN VERB`.

A command uses only the public API of the library:

    program       the list of nouns, and running one command
    grammar       commands as tables, and parsing of arguments
    connection    the options of a client from the arguments, the environment, and a profile
    profiles      named clusters, and their secrets
    output        results as tables, lines, or documents, on standard output
    event_loop    the import of asyncio, without TLS if none is needed
    asking        questions before a command destroys something
    exit_codes    the exit code for each kind of error, and errors as one line
    values        offsets, times, and other values that are typed
    librdkafka    the names of options in files of kcat
    completion    the words that a shell offers
    nouns/        the commands, one module for each noun

Only the module of the noun that was typed is imported. Help, wrong use, and completion import
neither asyncio nor the client, because that takes most of the time of a start. For the same reason,
the process ends without the interpreter's cleanup.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

__all__ = ["main"]

COMPLETE = "__complete"
"""The word before a line that a shell completes."""
GARBAGE = 50_000
"""The objects after which the garbage collector runs, instead of a few thousand."""
_INTERRUPTED = 130
owns_process = False
"""Whether this process was started for a command, and runs nothing else."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code.

    Without arguments, run that of the process, and end the process.
    """
    global owns_process
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        owns_process = True
        # Imports make many objects and hardly any garbage. Collections would take a tenth of a
        # start.
        gc.set_threshold(GARBAGE)
    try:
        if words[:1] == [COMPLETE]:
            from aiokclient.cli.completion import print_candidates

            code = print_candidates(words[1:])
        else:
            from aiokclient.cli.program import run_words

            code = int(run_words(words))
    except KeyboardInterrupt:
        code = _INTERRUPTED
    if arguments is None:
        _end_process(code)
    return code


def _end_process(code: int) -> None:
    """End the process at once: the interpreter's own end takes 20 ms."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            code = code or 1
    os._exit(code)
