"""The arguments of a worker, checked."""

from __future__ import annotations

import inspect
import math
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from aiokclient.config.producer import ProducerConfig
from aiokclient.consumer import Consumer
from aiokclient.errors import ConfigError
from aiokclient.errors.local import ArgumentTypeError, ArgumentValueError
from aiokclient.producer import Producer
from aiokclient.share.share_consumer import ShareConsumer
from aiokclient.types import seconds
from aiokclient.worker.dead_letters import DeadLetter
from aiokclient.worker.lanes import Order
from aiokclient.worker.retry import Batch, Retry
from aiokclient.worker.signals import DEFAULT_SIGNALS


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The arguments of a worker. `Worker` documents them."""

    concurrency: int
    order: Order
    retry: Retry
    dead_letter: DeadLetter | None
    timeout_s: float | None
    batch: Batch | None
    max_ahead: int
    skips: bool
    producer: Producer[Any, Any] | None
    drain_timeout_s: float
    signals: tuple[signal.Signals, ...] | None

    @property
    def is_transactional(self) -> bool:
        """Whether records and results are committed in transactions of the producer."""
        config = None if self.producer is None else cast(ProducerConfig, self.producer._config)
        return config is not None and config.transactional_id is not None


@dataclass(frozen=True, slots=True)
class Handler:
    """The handler of a worker, and how it is called."""

    call: Any
    takes_worker: bool
    """Whether it has a second required parameter, which is the worker."""
    is_blocking: bool
    """Whether it is no coroutine function, so that it runs in a thread."""

    @classmethod
    def of(cls, given: Any) -> Handler:
        """Return how to call a handler. Raises TypeError if it cannot be one."""
        if not callable(given):
            raise ArgumentTypeError(f"The handler must be a function of a record, not {given!r}.")
        method = given
        while hasattr(method, "func"):  # functools.partial
            method = method.func
        if not inspect.isroutine(method) and not isinstance(method, type):
            method = type(method).__call__
        return cls(given, _count_required(given) == 2, not inspect.iscoroutinefunction(method))


def _count_required(given: Any) -> int:
    try:
        parameters = inspect.signature(given).parameters.values()
    except ValueError:
        return 1  # A function in C without a signature.
    positional = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    required = [each for each in positional if each.default is each.empty]
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    keywords = [
        each.name
        for each in parameters
        if each.kind is each.KEYWORD_ONLY and each.default is each.empty
    ]
    if len(required) > 2 or not (positional or takes_any) or keywords:
        raise ArgumentTypeError(
            f"The handler {given!r} must take a record, or a record and the worker. Its signature "
            f"is {inspect.signature(given)}."
        )
    return max(len(required), 1)


def check_options(
    consumer: Any,
    *,
    concurrency: Any,
    order: Any,
    retry: Any,
    dead_letter: Any,
    timeout: Any,
    batch: Any,
    max_ahead: Any,
    on_giving_up: Any,
    producer: Any,
    drain_timeout: Any,
    signals: Any,
) -> WorkerOptions:
    """Return the arguments of a worker, checked.

    Raises TypeError for a wrong type, and ValueError for a value that is not allowed.
    """
    if not isinstance(consumer, Consumer | ShareConsumer):
        raise ArgumentTypeError(f"A worker takes a Consumer or a ShareConsumer, not {consumer!r}.")
    for name, number in (("concurrency", concurrency), ("max_ahead", max_ahead)):
        if isinstance(number, bool) or not isinstance(number, int):
            raise ArgumentTypeError(f"{name} must be an int, not {number!r}.")
        if number < 1:
            raise ArgumentValueError(f"{name} must be at least 1, not {number}.")
    if order == "default":
        order = "partition" if isinstance(consumer, Consumer) else None
    if order not in ("partition", "key", None):
        raise ArgumentValueError(f'order must be "partition", "key", or None, not {order!r}.')
    if on_giving_up not in ("stop", "skip"):
        raise ArgumentValueError(f'on_giving_up must be "stop" or "skip", not {on_giving_up!r}.')
    for name, kind, given in (
        ("retry", Retry, retry),
        ("batch", Batch, batch),
        ("producer", Producer, producer),
    ):
        if given is not None and not isinstance(given, kind):
            raise ArgumentTypeError(f"{name} must be a {kind.__name__}, not {given!r}.")
    retry = Retry() if retry is None else retry
    timeout_s = None if timeout is None else seconds(timeout)
    if timeout_s is not None and timeout_s <= 0:
        raise ArgumentValueError(f"timeout must be more than 0 seconds, not {timeout}.")
    if seconds(drain_timeout, "drain_timeout") < 0:
        raise ArgumentValueError(f"drain_timeout must be at least 0 seconds, not {drain_timeout}.")
    if isinstance(consumer, ShareConsumer):
        _check_share(order, retry, batch)
    _check_interval(consumer, retry, timeout_s)
    checked = WorkerOptions(
        concurrency,
        order,
        retry,
        _as_dead_letter(dead_letter),
        None if timeout_s == math.inf else timeout_s,
        batch,
        max_ahead,
        on_giving_up == "skip",
        producer,
        drain_timeout,
        _as_signals(signals),
    )
    if checked.is_transactional:
        _check_transactional(consumer, retry)
    return checked


def _check_transactional(
    consumer: Consumer[Any, Any] | ShareConsumer[Any, Any], retry: Retry
) -> None:
    """Refuse what cannot be exactly once."""
    if isinstance(consumer, ShareConsumer):
        raise ArgumentValueError(
            "A producer with a transactional id cannot be that of a worker over a ShareConsumer, "
            "because settlements cannot be part of a transaction. Pass a producer without one."
        )
    if retry.topic is not None and consumer._config.isolation_level != "read_committed":
        raise ConfigError(
            "A worker in transactions must not read the retry records of an aborted transaction, "
            'because their originals are handled again. Set isolation_level="read_committed" for '
            "its consumer, or retry in place, without Retry(topic=...)."
        )


def _check_share(order: Order, retry: Retry, batch: Batch | None) -> None:
    """Refuse what a share group does not have."""
    if order is not None:
        raise ArgumentValueError(
            f"order must be None for a ShareConsumer, not {order!r}, because a share group keeps "
            "no order. Use a Consumer where order matters."
        )
    if batch is not None:
        raise ArgumentValueError(
            "batch is for a Consumer. The records of a ShareConsumer are settled one by one; "
            "ShareConsumer.batches() reads them in lists."
        )
    if retry.topic is not None:
        raise ArgumentValueError(
            "Retry(topic=...) is for a Consumer. A worker over a ShareConsumer retries in place. "
            "For longer delays, send the record by worker.send() to a topic that another worker "
            "reads."
        )


def _check_interval(
    consumer: Consumer[Any, Any] | ShareConsumer[Any, Any], retry: Retry, timeout_s: float | None
) -> None:
    """Refuse backoffs in place that the group would take for a program that hangs."""
    if isinstance(consumer, ShareConsumer):
        _check_renewals(consumer, retry, timeout_s)
        return
    interval_s = consumer._config.max_poll_interval_ms / 1000
    if consumer._config.group_id is None or retry.topic is not None or retry.attempts == 1:
        return
    if retry.backoff.max + (timeout_s or 0.0) >= interval_s:
        plus = "" if timeout_s is None else f" plus the timeout of {timeout_s:g} s"
        raise ConfigError(
            f"The longest backoff of {retry.backoff.max:g} s{plus} is not below "
            f"max_poll_interval_ms, which is {interval_s:g} s. Set a lower Exponential(max=...), "
            "or name a retry topic by Retry(topic=...), which delays no other records."
        )


def _check_renewals(
    consumer: ShareConsumer[Any, Any], retry: Retry, timeout_s: float | None
) -> None:
    """Refuse backoffs in place for which the lock of a record is not renewed."""
    limit_s = consumer._config.max_processing_ms / 1000
    if retry.attempts > 1 and retry.backoff.max + (timeout_s or 0.0) >= limit_s:
        plus = "" if timeout_s is None else f" plus the timeout of {timeout_s:g} s"
        raise ConfigError(
            f"The longest backoff of {retry.backoff.max:g} s{plus} is not below max_processing_ms, "
            f"for which locks are renewed, and which is {limit_s:g} s. Set a lower "
            "Exponential(max=...), or a higher max_processing_ms."
        )


def _as_dead_letter(given: Any) -> DeadLetter | None:
    if given is None or isinstance(given, DeadLetter):
        return given
    if isinstance(given, str):
        return DeadLetter(given)
    raise ArgumentTypeError(
        f"dead_letter must be the name of a topic or a DeadLetter, not {given!r}."
    )


def _as_signals(given: Any) -> tuple[signal.Signals, ...] | None:
    if given is None:
        return None
    if given is False:
        return ()
    if given is True:
        return DEFAULT_SIGNALS
    if isinstance(given, Iterable) and not isinstance(given, str):
        return tuple(signal.Signals(each) for each in given)
    raise ArgumentTypeError(
        f"signals must be None, False, or a sequence of signals, such as [SIGTERM], not {given!r}."
    )
