"""The collection of everything that a program, its log, and its error reporter may show."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import io
import json
import logging
import os
import pickle
import pprint
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from hidden import shown
from secret_search import Collected

from aiokclient import threads
from aiokclient.errors import KafkaError

__all__ = ["CHANNELS", "Collector"]

CHANNELS = {
    "error": "texts, notes, and formatted tracebacks of exceptions",
    "events": "events, with their causes",
    "fields": "vars(), dataclasses.asdict(), and JSON of public objects",
    "files": "files that were left in the folder for temporary files",
    "health": "health()",
    "locals": "local variables in the frames of tracebacks and tasks",
    "log": "log records at level DEBUG of all loggers",
    "metrics": "metrics()",
    "notebook": "what a notebook shows of an object",
    "output": "the standard output and the standard error",
    "pickle": "pickles and copies of public objects and exceptions",
    "prometheus": "the texts of metrics for Prometheus",
    "pushed": "the metrics that are pushed to brokers, decompressed",
    "repr": "repr, str, and format of public objects",
    "requests": "the requests that an embedded cluster has recorded, as texts",
    "spans": "the spans and metrics that OpenTelemetry exports",
    "warnings": "warnings",
    "wire": "bytes of requests that are not part of a login",
}

PROTOCOLS = (0, 2, pickle.HIGHEST_PROTOCOL)
"""Protocols of pickles. Objects reduce themselves for those between as for the lower one."""

RICH = ("_repr_html_", "_repr_mimebundle_", "_repr_markdown_", "_repr_json_")
OWN_FILES = (
    "command_process.py",
    "secret_command_line.py",
    "secret_collector.py",
    "secret_endpoints.py",
    "registry_stub.py",
    "secret_options.py",
    "secret_registry.py",
    "secret_telemetry.py",
    "secret_tour.py",
    "secret_visits.py",
    "test_secrets.py",
    "token_server.py",
)
"""The files of the tests. Their frames contain the secrets, so they are not searched."""


class Collector:
    """A collector of everything that the program shows within `collecting`."""

    def __init__(self) -> None:
        self.collected = Collected()
        self.seen: set[str] = set()
        """The names of the loggers and classes that have been searched."""

    @contextlib.contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the log, warnings, the output, and temporary files."""
        root, handler = logging.getLogger(), _Handler(self)
        levels = {name: logging.getLogger(name).level for name in ("", "asyncio", "aiokclient")}
        output = io.StringIO()
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(_temporary_files_in(folder))
            stack.enter_context(self._watching_threads())
            caught = stack.enter_context(warnings.catch_warnings(record=True))
            warnings.simplefilter("always")
            stack.enter_context(contextlib.redirect_stdout(output))
            stack.enter_context(contextlib.redirect_stderr(output))
            root.addHandler(handler)
            for name in levels:
                logging.getLogger(name).setLevel(logging.DEBUG)
            logging.getLogger("asyncio").debug("The collection begins.")
            try:
                yield
            finally:
                for name, level in levels.items():
                    logging.getLogger(name).setLevel(level)
                root.removeHandler(handler)
                for warning in caught:
                    self.collected.add("warnings", f"{warning.message!r} {warning}")
                self.collected.add("output", output.getvalue())
                for path in filter(Path.is_file, Path(folder).rglob("*")):
                    self.collected.add("files", path.name)
                    self.collected.add("files", path.read_bytes())

    @contextlib.contextmanager
    def _watching_threads(self) -> Iterator[None]:
        """Look at each future of a call in a thread when it is done, before its task continues.

        The repr of the task shows the future, and the log of asyncio may.
        """
        run, run_blocking = threads.run, threads.run_blocking

        def watch(start: Any) -> Any:
            def run_watched(*args: Any) -> Any:
                future = start(*args)
                future.add_done_callback(partial(self.add, "repr"))
                return future

            return run_watched

        threads.run, threads.run_blocking = watch(run), watch(run_blocking)
        try:
            yield
        finally:
            threads.run, threads.run_blocking = run, run_blocking

    def add(self, channel: str, *values: Any) -> None:
        """Add the texts of values to a channel."""
        assert channel in CHANNELS
        for value in values:
            self.collected.add(channel, f"{shown(value)} {value}")

    def look(self, *things: Any) -> None:
        """Look at public objects in all ways that show their contents."""
        for thing in things:
            self.seen.add(type(thing).__name__)
            self.add("repr", thing, [thing], {"key": thing})
            self.collected.add("repr", f"{thing!a} {thing:} {pprint.pformat(thing)}")
            self._look_inside(thing)
            self._copy(thing)
            self._show_in_notebook(thing)

    def _look_inside(self, thing: Any) -> None:
        fields: list[Any] = [getattr(thing, "__dict__", None)]
        slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        fields += [getattr(thing, name, None) for name in slots if name != "_value"]
        if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
            with contextlib.suppress(TypeError, AttributeError):
                fields.append(dataclasses.asdict(thing))
                fields.append(dataclasses.astuple(thing))
        fields.append(getattr(getattr(thing, "_config", None), "given_options", dict)())
        with contextlib.suppress(TypeError):
            fields.append(thing.__getstate__())
        for value in fields:
            self.add("fields", value)
        for default in (repr, str, vars):
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                self.collected.add("fields", json.dumps(thing, default=default))

    def _copy(self, thing: Any) -> None:
        for protocol in PROTOCOLS:
            try:
                self.collected.add("pickle", pickle.dumps(thing, protocol))
            except Exception as error:
                self.error(error, pickled=False)
        if hasattr(thing, "health"):
            return  # A copied client would have an incomplete copy of its event loop.
        for duplicate in (copy.copy, copy.deepcopy):
            try:
                self.add("pickle", duplicate(thing))
            except Exception as error:
                self.error(error, pickled=False)

    def _show_in_notebook(self, thing: Any) -> None:
        for name in RICH:
            method = getattr(thing, name, None)
            if method is not None and not isinstance(thing, type):
                with contextlib.suppress(TypeError):
                    self.add("notebook", method())

    def error(self, error: BaseException, *, pickled: bool = True) -> None:
        """Look at an exception and at its causes, as an error reporter does."""
        self.seen.add(type(error).__name__)
        self.add("error", error, error.args, vars(error), getattr(error, "__notes__", []))
        self.collected.add("error", "".join(traceback.format_exception(error)))
        found: BaseException | None = error
        while found is not None:
            self.add("error", found, vars(found))
            self._frames(frame for frame, _ in traceback.walk_tb(found.__traceback__))
            found = found.__cause__ or found.__context__
        # Before Python 3.13, this fails if a repr fails. The repr of an incomplete copy does.
        with contextlib.suppress(AttributeError):
            captured = traceback.TracebackException.from_exception(error, capture_locals=True)
            self._captured(captured)
        if pickled:
            self._copy(error)

    def _captured(self, trace: traceback.TracebackException | None) -> None:
        if trace is None:
            return
        for frame in trace.stack:
            if not frame.filename.endswith(OWN_FILES):
                for name, text in (frame.locals or {}).items():
                    self.collected.add("locals", f"{frame.name}: {name}={text}")
        for other in (trace.__cause__, trace.__context__, *(trace.exceptions or ())):
            self._captured(other)

    def _frames(self, frames: Any) -> None:
        for frame in frames:
            if not frame.f_code.co_filename.endswith(OWN_FILES):
                for name, value in list(frame.f_locals.items()):
                    self.collected.add("locals", f"{frame.f_code.co_name}: {name}={shown(value)}")

    def tasks(self) -> None:
        """Look at all tasks of the event loop, as a debugger does."""
        for task in asyncio.all_tasks():
            self.add("repr", task)
            self._frames(task.get_stack())

    def client(self, client: Any) -> None:
        """Look at a client, at its health, and at its metrics."""
        health = client.health()
        self.look(client, health)
        self.add("health", health, dataclasses.asdict(health))
        try:
            metrics = client.metrics()
        except KafkaError as error:
            self.error(error)
        else:
            self.look(metrics)
            self.add("metrics", metrics, dict(metrics))
        self.tasks()

    def event(self, event: Any) -> None:
        """Look at an event."""
        self.seen.add(type(event).__name__)
        self.add("events", event)
        values = {each.name: getattr(event, each.name) for each in dataclasses.fields(event)}
        self.add("events", values)
        if event.cause is not None:
            self.collected.add("events", "".join(traceback.format_exception(event.cause)))
            self.error(event.cause)

    def requests(self, requests: Any) -> None:
        """Look at the requests that an embedded cluster has recorded."""
        for request in requests:
            self.add("requests", request, request.message)


class _Handler(logging.Handler):
    """A handler that collects everything of a log record."""

    def __init__(self, collector: Collector) -> None:
        super().__init__(logging.DEBUG)
        self._collector = collector

    def emit(self, record: logging.LogRecord) -> None:
        self._collector.seen.add(record.name)
        add = self._collector.collected.add
        add("log", self.format(record))
        attributes = {name: value for name, value in vars(record).items() if name != "created"}
        add("log", shown(attributes))
        add("log", shown(record.args))


@contextlib.contextmanager
def _temporary_files_in(folder: str) -> Iterator[None]:
    before, tempfile.tempdir = tempfile.tempdir, os.fspath(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before
