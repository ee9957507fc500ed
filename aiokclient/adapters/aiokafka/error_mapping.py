"""The table from aiokclient's errors to those of aiokafka.

A broker's error becomes the class with the same code, if aiokafka knows that code, unless a row of
`RAISED` names its class. A local error becomes what the row of the nearest base class says.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

from aiokclient import errors as native
from aiokclient.adapters.aiokafka import errors

RAISED: Mapping[type[BaseException], type[Exception]] = MappingProxyType(
    {
        # Base classes. A class without a row of its own, and without a code of aiokafka's, has the
        # row of one of these.
        native.KafkaError: errors.KafkaError,
        native.KafkaTimeoutError: errors.KafkaTimeoutError,
        native.UsageError: errors.IllegalStateError,
        native.AuthenticationError: errors.AuthenticationFailedError,
        native.InvalidOffsetError: errors.KafkaError,
        # The network and the brokers.
        native.BootstrapError: errors.KafkaConnectionError,
        native.NetworkError: errors.KafkaConnectionError,
        native.ConnectionSetupError: errors.KafkaConnectionError,
        native.TokenProviderError: errors.KafkaConnectionError,
        native.TicketError: errors.KafkaConnectionError,
        native.SaslAuthenticationError: errors.AuthenticationFailedError,
        native.UnsupportedSaslMechanismError: errors.AuthenticationMethodNotSupported,
        native.ProtocolError: errors.KafkaProtocolError,
        # The producer.
        native.BufferExhaustedError: errors.KafkaTimeoutError,
        native.ProducerFencedError: errors.ProducerFenced,
        native.InvalidProducerEpochError: errors.ProducerFenced,
        native.UnsupportedCompressionTypeError: errors.UnsupportedCodecError,
        # The consumer.
        native.CommitFailedError: errors.CommitFailedError,
        native.UnknownMemberIdError: errors.CommitFailedError,
        native.IllegalGenerationError: errors.CommitFailedError,
        native.NoOffsetError: errors.NoOffsetForPartitionError,
        native.LogTruncationError: errors.OffsetOutOfRangeError,
        native.CorruptBatchError: errors.CorruptRecordException,
        native.ResponseTooLargeError: errors.RecordTooLargeError,
        # Options.
        native.ConfigError: errors.KafkaConfigurationError,
    }
)
"""The classes for errors that aiokafka does not raise by the broker's code."""

OF_MANY_TOPICS: Final = frozenset({"OffsetCommit", "AddPartitionsToTxn", "TxnOffsetCommit"})
"""The requests for which aiokafka names all topics that the user may not use."""


def find_class(kind: type[BaseException]) -> type[Exception]:
    """Return the class of aiokafka for a class of aiokclient."""
    for base in kind.__mro__:
        if base in RAISED and base is not native.KafkaError:
            return RAISED[base]
        code = vars(base).get("code")
        if isinstance(code, int) and code in errors.kafka_errors:
            return errors.kafka_errors[code]
    return RAISED[native.KafkaError]


def translate(
    error: BaseException, when_closed: type[Exception] = errors.IllegalStateError
) -> BaseException:
    """Return the error of aiokafka for one of aiokclient, with that as its cause.

    The failure of a serializer or deserializer becomes the program's own exception, as aiokafka
    raises it, and the error for a wrong argument a TypeError or ValueError. `when_closed` is the
    class for a client that is closed. `args` are those of aiokafka for what `find_subject` finds,
    and otherwise the text.
    """
    if isinstance(error, native.SerializationError) and error.__cause__ is not None:
        cause = error.__cause__
        if not isinstance(cause, native.KafkaError):
            return cause
    if isinstance(error, native.ClosedError):
        kind = when_closed
    elif isinstance(error, native.UsageError) and isinstance(error, TypeError):
        kind = TypeError
    elif isinstance(error, native.UsageError) and isinstance(error, ValueError):
        kind = ValueError
    else:
        kind = find_class(type(error))
    translated = kind(str(error))
    subject = find_subject(error)
    if subject is not None and isinstance(translated, errors.KafkaError):
        translated.args, translated._text = (subject,), str(error)
    translated.__cause__ = error
    return translated


def find_subject(error: BaseException) -> Any:
    """Return what aiokafka gives as the argument of an error instead of a text, or None.

    Programs seek to where the partitions begin that `error.args[0]` names, as the documentation of
    aiokafka recommends: a partition without an offset, and a dict from a partition to the offset
    that it does not have. Of a topic that the user may not use, it is the name; of commits and
    transactions, it is a set of names.
    """
    if not isinstance(error, native.KafkaError):
        return None
    partition = error.topic_partition
    if isinstance(error, native.TopicAuthorizationError):
        topic = error.resource if partition is None else partition.topic
        return {topic} if topic is not None and error.api in OF_MANY_TOPICS else topic
    if partition is None:
        return None
    if isinstance(error, native.NoOffsetError):
        return partition
    if isinstance(error, native.OffsetOutOfRangeError) and error.offset is not None:
        return {partition: error.offset}
    return None


@contextmanager
def translated_errors(
    when_closed: type[Exception] = errors.IllegalStateError,
) -> Generator[None, None, None]:
    """Return a context that raises aiokafka's errors instead of aiokclient's."""
    try:
        yield
    except native.KafkaError as error:
        raise translate(error, when_closed) from error
