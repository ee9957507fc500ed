"""Run workers: `python -m aiokclient.worker service:app`.

The exit code tells how they ended; see `ExitCode`. Wrong use and errors of Kafka are one line on
standard error. Errors of the program itself come with their traceback.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from functools import partial
from importlib import import_module
from types import FrameType
from typing import Any, Final, NoReturn

from aiokclient.errors import ConfigError, HandlerStuckError, KafkaError
from aiokclient.worker.serving.group import WorkerGroup, log_failure
from aiokclient.worker.serving.reloading import run_and_reload
from aiokclient.worker.worker import Worker

PROGRAM: Final = "python -m aiokclient.worker"
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class ExitCode(IntEnum):
    """The exit codes. After a second signal, it is 128 and the number of the signal."""

    SUCCESS = 0
    """All workers were stopped, by a signal or by the program, and have drained."""
    FAILED = 1
    """A worker has failed, or the cluster was not reached."""
    WRONG_USE = 2
    """There is no such module or object, it is no worker, or an option is invalid."""
    STUCK = 3
    """A handler did not end when it was cancelled. The process ended without it."""


class WrongUseError(Exception):
    """An error raised if the arguments name no workers."""


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Run the workers of a program until SIGTERM or Ctrl-C. The first signal lets "
        "them finish what they have begun; the second one cancels it.",
        epilog="Exit codes: 0 stopped, 1 a worker failed, 2 wrong use, 3 a handler was stuck, 128 "
        "and the number of a second signal.",
    )
    parser.add_argument(
        "target",
        metavar="MODULE:NAME",
        help="a Worker, a list of them, or a function (async, too) that returns them",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="start again when a Python file in this folder has changed; for development",
    )
    return parser


def find_target(text: str) -> Any:
    """Return the object that MODULE:NAME names. Raise WrongUseError if it does not exist."""
    module_name, colon, path = text.partition(":")
    if not colon or not module_name or not path or module_name.startswith("."):
        raise WrongUseError(f"{text!r} is not MODULE:NAME, such as service:app.")
    try:
        found: Any = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # A module that the program itself imports.
        raise WrongUseError(f"There is no module {module_name!r} in {os.getcwd()}.") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise WrongUseError(f"The module {module_name!r} has no {path!r}.")
        found = getattr(found, name)
    return found


async def make_workers(target: Any, text: str) -> list[Worker]:
    """Return the workers that a target is, contains, or returns."""
    if callable(target) and not isinstance(target, Worker):
        target = _call(target, text)
        if inspect.isawaitable(target):
            target = await target
    workers = [target] if isinstance(target, Worker) else target
    if not isinstance(workers, Iterable) or isinstance(workers, str | bytes):
        raise WrongUseError(
            f"{text} is {_shown(target)}. Name a Worker, a list of them, or a function that "
            "returns them."
        )
    workers = list(workers)
    wrong = next((item for item in workers if not isinstance(item, Worker)), None)
    if wrong is not None or not workers:
        found = "no workers" if wrong is None else f"{_shown(wrong)}, which is no Worker"
        raise WrongUseError(f"{text} contains {found}.")
    return workers


def _call(function: Callable[[], Any], text: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise WrongUseError(f"{text} cannot be called without arguments: {error}.") from None
    return function()


def _shown(thing: object) -> str:
    return f"an object of the class {type(thing).__qualname__}"


class ProcessGroup(WorkerGroup):
    """Workers that all end when one of them fails."""

    def on_worker_failed(self, worker: Worker, error: BaseException) -> None:
        if len(self.workers) > 1:
            log_failure(worker, error, "The other workers of this process are stopped.")
        self.stop_workers()


class Process:
    """The workers of this process, and the signals that end them."""

    def __init__(self) -> None:
        self._group: WorkerGroup | None = None
        self._signals = 0
        self.cancelled_by = 0
        """The number of the second signal, or 0."""
        self._starting: asyncio.Task[Any] | None = None

    async def run(self, target: Any, text: str) -> None:
        """Run the workers until all have ended, or the first one fails."""
        loop = asyncio.get_running_loop()
        self._starting = asyncio.current_task()
        with self._handle_signals(loop):
            workers = await make_workers(target, text)
            group = ProcessGroup(*workers)
            try:
                async with group:
                    self._group, self._starting = group, None
                    if self._signals:
                        group.stop_workers()
                    await group.wait_until_ended()
            except HandlerStuckError as error:
                end_process(error)

    @contextmanager
    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Handle signals. Workers leave them alone, because they have handlers already."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            try:
                loop.add_signal_handler(number, self._on_signal, number)
            except NotImplementedError:  # On Windows, which wakes the loop for a signal itself.
                signal.signal(number, partial(self._on_signal_without_loop, loop))
        try:
            yield
        finally:
            for number, handler in before.items():
                with suppress(NotImplementedError):
                    loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _on_signal_without_loop(
        self, loop: asyncio.AbstractEventLoop, number: int, frame: FrameType | None
    ) -> None:
        loop.call_soon_threadsafe(self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1 and self._group is not None:
            self._group.stop_workers()
        elif self._signals == 1:
            self._cancel_start()
        else:
            self.cancelled_by = number
            if self._group is not None:
                self._group.cancel_workers()

    def _cancel_start(self) -> None:
        """Cancel the start, because a worker that has not begun has nothing to finish."""
        if self._starting is not None:
            self._starting.cancel()


def end_process(error: HandlerStuckError) -> NoReturn:
    """End the process although a handler is running, which the event loop would wait for."""
    print_line(error)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ExitCode.STUCK)


def print_line(error: BaseException) -> None:
    """Print the text of an error as one line on standard error."""
    sys.stderr.write(f"{PROGRAM}: {' '.join(str(error).split())}\n")


def run_workers(text: str) -> int:
    """Run the workers that MODULE:NAME names. Return the exit code."""
    process = Process()
    try:
        asyncio.run(process.run(find_target(text), text))
    except (WrongUseError, ConfigError) as error:
        print_line(error)
        return ExitCode.WRONG_USE
    except KafkaError as error:
        print_line(error)
        return ExitCode.FAILED
    except asyncio.CancelledError:
        pass  # A signal during the start.
    except Exception:
        traceback.print_exc()
        return ExitCode.FAILED
    return 128 + process.cancelled_by if process.cancelled_by else ExitCode.SUCCESS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, those of the process by default."""
    options = _make_parser().parse_args(arguments)
    if options.reload:
        return run_and_reload([sys.executable, "-m", "aiokclient.worker", options.target])
    return run_workers(options.target)


if __name__ == "__main__":
    sys.exit(main())
