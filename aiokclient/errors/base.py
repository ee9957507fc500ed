"""The base class, the categories, the composition of an error's text, and the error of a code."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Self

from aiokclient.log.texts import LONGEST, bounded, printable
from aiokclient.types import TopicPartition

__all__ = [
    "AbortableError",
    "ApplicationRecoverableError",
    "AuthenticationError",
    "AuthorizationError",
    "InvalidConfigurationError",
    "InvalidMetadataError",
    "InvalidOffsetError",
    "KafkaError",
    "RefreshRetriableError",
    "RetriableError",
    "UnknownCodeError",
]

PUBLIC = __package__
"""The package whose classes programs can import."""

registered: dict[int, type[KafkaError]] = {}
"""Every broker error by its code, filled as the classes are defined."""


class KafkaError(Exception):
    """The base class of all errors of this library.

    The text of an error answers three questions: what happened (`what`, and `message` with the
    details), where (`api`, `broker`, `topic_partition`, `resource`), and what to do (`hint`). If
    that takes several steps, it ends with `help:` and the page that has them. The attributes that
    say where may be set after the error was created.
    """

    code: int | None = None
    """Kafka's error code; None for an error that no broker sends."""
    name: str | None = None
    """Kafka's name for the code, for example `NOT_LEADER_OR_FOLLOWER`."""
    what: str = ""
    """The meaning of the error, as one sentence."""
    hint: str = ""
    """Advice to the application about the error."""
    help: str = ""
    """Path and anchor of the documentation's page with the steps that solve the error. It is empty
    if the text says all that there is to do."""
    retriable: bool = False
    """Whether the same call may succeed later. The client retries on its own until the deadline."""
    _has_lines: ClassVar[bool] = False
    """Whether the text may have several lines. No part of it comes from a broker then."""
    fatal: bool = False
    """Whether the client that raised the error must be closed and replaced."""

    def __init_subclass__(
        cls, *, code: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is None:
            cls.__doc__ = f"{cls.what} {cls.hint}".strip()
        if code is None:
            return
        if code in registered:
            other = registered[code].__name__
            raise TypeError(f"The classes {other} and {cls.__name__} have the same code, {code}.")
        cls.code, cls.name = code, name
        registered[code] = cls

    def __init__(
        self,
        message: str = "",
        *,
        api: str | None = None,
        broker: int | str | None = None,
        topic_partition: TopicPartition | None = None,
        resource: str | None = None,
    ) -> None:
        if not message.isprintable() and not self._has_lines:
            message = printable(message)
        super().__init__(message)
        self.message = message
        self.api = api
        self.broker = broker
        self.topic_partition = topic_partition
        self.resource = resource

    def __str__(self) -> str:
        text = self._compose_text()
        return f"{text} help: {self.help}".lstrip() if self.help else text

    def _compose_text(self) -> str:
        sentences = (self.what, self.message, self.hint)
        text = " ".join(_sentence(part) for part in sentences if part)
        head = f"{self._label_text()}{self._describe_place()}".strip().removeprefix("in ")
        return f"{head}: {text}" if head and text else head or text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _label_text(self) -> str:
        return f"{self.name} ({self.code})" if self._has_own_code else ""

    @property
    def _has_own_code(self) -> bool:
        # A local class may derive from a class with a broker's code (a lost connection is a network
        # error). No broker sent such an error, so its text does not have that code.
        return self.code is not None and "code" in {**type(self).__dict__, **self.__dict__}

    def _describe_place(self) -> str:
        where = f" in {self.api}" if self.api else ""
        if isinstance(self.broker, int) and self.broker < 0:
            where += " to a bootstrap server"  # The id of a bootstrap server is internal.
        elif self.broker is not None:
            where += f" to broker {self.broker}"
        about: object = self.topic_partition
        if self.topic_partition is None:
            about = self.resource
        elif self.topic_partition.partition < 0:
            about = self.topic_partition.topic  # The partition was not chosen yet.
        return printable(f"{where} for {about}" if about is not None else where)

    def with_partition(self, topic_partition: TopicPartition) -> Self:
        """Return a copy that names another partition, for a cause that several partitions share."""
        copied = copy.copy(self)
        copied.topic_partition = topic_partition
        copied.__cause__, copied.__context__ = self.__cause__, self.__context__
        copied.__suppress_context__ = self.__suppress_context__
        return copied

    @property
    def brief(self) -> str:
        """What happened, in one sentence without advice, for the text of another error."""
        if not self._has_own_code:
            return f"{self._public_name}: {_sentence(self.message or self.what)}"
        said = f": {self.message}" if self.message else ""
        return _sentence(f"{self.name} ({self.code}){said}")

    @property
    def _public_name(self) -> str:
        """The name of the class, or of the public class from which an internal one derives."""
        kinds = (kind for kind in type(self).__mro__ if kind.__module__.startswith(PUBLIC))
        return next(kinds, type(self)).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args), dict(self.__dict__)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...]) -> KafkaError:
    # Skip __init__, whose arguments differ from class to class. pickle restores the attributes.
    error = cls.__new__(cls)
    error.args = args
    return error


class RetriableError(KafkaError):
    """An error after which the same request may succeed later."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """An error after which the same request may succeed once the client has new metadata.

    The client looks up the metadata or the coordinator before it retries.
    """


class InvalidMetadataError(RefreshRetriableError):
    """An error that shows that the client's metadata is out of date."""


class AbortableError(KafkaError):
    """An error after which the transaction must be aborted. The producer can then start another."""


class ApplicationRecoverableError(KafkaError):
    """An error after which the client must be closed and replaced, and its state restored."""

    fatal = True


class UnknownCodeError(ApplicationRecoverableError):
    """An error whose code this version of the library does not know; `code` is that code."""

    what = "The broker returned an error code that this version of aiokclient does not know."
    hint = (
        "Look up the code in the documentation of the broker's Kafka version, or upgrade "
        "aiokclient."
    )

    def __init__(
        self,
        code: int,
        message: str = "",
        *,
        api: str | None = None,
        broker: int | str | None = None,
        topic_partition: TopicPartition | None = None,
        resource: str | None = None,
    ) -> None:
        super().__init__(
            message, api=api, broker=broker, topic_partition=topic_partition, resource=resource
        )
        self.code = code
        self.name = "UNKNOWN_CODE"


class InvalidConfigurationError(KafkaError):
    """An error whose cause is outside the program: a permission, a credential, or a setting."""


class AuthorizationError(InvalidConfigurationError):
    """An error raised when the authenticated user lacks a permission."""


class AuthenticationError(InvalidConfigurationError):
    """An error raised when the broker does not accept the client's credentials."""


class InvalidOffsetError(KafkaError):
    """An error raised when a partition has no record at the requested position."""


def error_for(
    code: int,
    message: str | None = None,
    *,
    api: str | None = None,
    broker: int | str | None = None,
    topic_partition: TopicPartition | None = None,
    resource: str | None = None,
) -> KafkaError | None:
    """Return the error that a broker's code stands for; None for 0, which is success.

    `message` is the text that the broker sent with the code, of which LONGEST characters are kept.
    For a code that this library does not know, the error is an `UnknownCodeError` with that code.
    """
    if code == 0:
        return None
    message = message or ""
    if len(message) > LONGEST:
        message = bounded(message)
    error_type = registered.get(code)
    error = UnknownCodeError(code, message) if error_type is None else error_type(message)
    error.api, error.broker = api, broker
    error.topic_partition, error.resource = topic_partition, resource
    return error
