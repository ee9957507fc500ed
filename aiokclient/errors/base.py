"""The root, the categories, and how an error's text is composed."""

from __future__ import annotations

import copy
from typing import Any, Self

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
]

registered: dict[int, type[KafkaError]] = {}
"""Every broker error by its code, filled as the classes are defined."""


class KafkaError(Exception):
    """The root of all errors of this library.

    An error text answers three questions: what happened (`what`, and `message` with the details
    of this occurrence), where (`api`, `broker`, `topic_partition`, `resource`), and what to do
    (`hint`). The places may be filled in after the error was made.
    """

    code: int | None = None
    """Kafka's number; None for an error that no broker sends."""
    name: str | None = None
    """Kafka's name of the code, for example `NOT_LEADER_OR_FOLLOWER`."""
    what: str = ""
    """What the class of error means, in a sentence."""
    hint: str = ""
    """What to do about it."""
    retriable: bool = False
    """The same call may succeed later. The client retries by itself until its deadline."""
    fatal: bool = False
    """The producer or consumer that raised it is of no more use: close it and make a new one."""

    def __init_subclass__(
        cls, *, code: int | None = None, name: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__doc__ is None:
            cls.__doc__ = f"{cls.what} {cls.hint}".strip()
        if code is None:
            return
        if code in registered:
            raise TypeError(f"code {code} is both {registered[code].__name__} and {cls.__name__}")
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
        super().__init__(message)
        self.message = message
        self.api = api
        self.broker = broker
        self.topic_partition = topic_partition
        self.resource = resource

    def __str__(self) -> str:
        sentences = (self.what, self.message, self.hint)
        text = " ".join(_sentence(part) for part in sentences if part)
        head = f"{self._label()}{self._place()}".strip().removeprefix("in ")
        return f"{head}: {text}" if head and text else head or text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def _label(self) -> str:
        # A local class may derive from a broker's (a lost connection is a network error), but no
        # broker sent it, so its text does not start with the broker's code.
        if self.code is None or "code" not in {**type(self).__dict__, **self.__dict__}:
            return ""
        return f"{self.name} ({self.code})"

    def _place(self) -> str:
        place = f" in {self.api}" if self.api else ""
        if isinstance(self.broker, int) and self.broker < 0:
            place += " to a bootstrap server"  # Which has no id that anyone else knows.
        elif self.broker is not None:
            place += f" to broker {self.broker}"
        about: object = self.topic_partition
        if self.topic_partition is None:
            about = self.resource
        elif self.topic_partition.partition < 0:
            about = self.topic_partition.topic  # the partition was not chosen yet
        return f"{place} for {about}" if about is not None else place

    def with_partition(self, topic_partition: TopicPartition) -> Self:
        """Return a copy that names another partition: several may have failed of the same."""
        copied = copy.copy(self)
        copied.topic_partition = topic_partition
        copied.__cause__, copied.__context__ = self.__cause__, self.__context__
        copied.__suppress_context__ = self.__suppress_context__
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args), dict(self.__dict__)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."


def _rebuild(cls: type[KafkaError], args: tuple[Any, ...]) -> KafkaError:
    # Past __init__, whose arguments differ from class to class; the state follows as a dict.
    error = cls.__new__(cls)
    error.args = args
    return error


class RetriableError(KafkaError):
    """The same request may succeed a little later."""

    retriable = True


class RefreshRetriableError(RetriableError):
    """The same request may succeed once metadata or the coordinator has been looked up anew."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's picture of the cluster is out of date."""


class AbortableError(KafkaError):
    """The transaction has to be aborted; its producer can begin the next one."""


class ApplicationRecoverableError(KafkaError):
    """The client that raised it cannot go on; close it, make a new one, and restore the state."""

    fatal = True


class InvalidConfigurationError(KafkaError):
    """Something outside the program is to be mended: a permission, a credential, a setting."""


class AuthorizationError(InvalidConfigurationError):
    """The principal is known but lacks a permission."""


class AuthenticationError(InvalidConfigurationError):
    """The broker does not accept who the client says it is."""


class InvalidOffsetError(KafkaError):
    """A partition has no record at the position that was asked for."""
