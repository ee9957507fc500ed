"""The tree of error classes, as a program that catches them sees it."""

import copy
import pickle

import pytest

from aiokclient import TopicPartition, errors
from aiokclient.errors import KafkaError

LOCAL = {
    "KafkaTimeoutError": ("RetriableError", TimeoutError),
    "DeliveryTimeoutError": ("KafkaTimeoutError", TimeoutError),
    "ApiTimeoutError": ("KafkaTimeoutError", TimeoutError),
    "RequestTimedOutError": ("KafkaTimeoutError", TimeoutError),
    "BufferExhaustedError": ("RetriableError", Exception),
    "ConfigError": ("KafkaError", ValueError),
    "SerializationError": ("KafkaError", Exception),
    "RecordError": ("KafkaError", Exception),
    "CorruptBatchError": ("RecordError", Exception),
    "DecompressionLimitError": ("RecordError", Exception),
    "RecordTooLargeError": ("KafkaError", Exception),
    "ProtocolError": ("KafkaError", Exception),
    "AssignmentFailedError": ("KafkaError", Exception),
    "NotWriterError": ("KafkaError", Exception),
    "UsageError": ("KafkaError", RuntimeError),
    "ClosedError": ("UsageError", RuntimeError),
    "IllegalStateError": ("UsageError", RuntimeError),
    "WrongThreadError": ("UsageError", RuntimeError),
    "WrongLoopError": ("UsageError", RuntimeError),
    "ConcurrentReadError": ("UsageError", RuntimeError),
    "RefreshRetriableError": ("RetriableError", Exception),
    "InvalidMetadataError": ("RefreshRetriableError", Exception),
    "AuthorizationError": ("InvalidConfigurationError", Exception),
    "AuthenticationError": ("InvalidConfigurationError", Exception),
    "LockLostError": ("InvalidRecordStateError", Exception),
    "AcknowledgeError": ("KafkaError", Exception),
    "DeliveryErrors": (None, ExceptionGroup),
    "AcknowledgeErrors": (None, ExceptionGroup),
}
BROKERS = ("RequestTimedOutError", "RecordTooLargeError", "LockLostError")
"""Errors of the table that brokers send, or that derive from one of those."""
CATEGORIES = (
    errors.RetriableError,
    errors.AbortableError,
    errors.ApplicationRecoverableError,
    errors.InvalidConfigurationError,
)


@pytest.mark.parametrize(("name", "bases"), LOCAL.items())
def test_every_error_has_its_bases(name: str, bases: tuple[str | None, type]) -> None:
    kind = getattr(errors, name)
    base, builtin = bases
    assert base is None or issubclass(kind, getattr(errors, base))
    assert issubclass(kind, builtin)


def test_no_error_has_two_categories() -> None:
    for kind in errors.ERRORS_BY_CODE.values():
        assert sum(issubclass(kind, category) for category in CATEGORIES) <= 1
        assert kind.retriable is issubclass(kind, errors.RetriableError)


@pytest.mark.parametrize("kind", errors.ERRORS_BY_CODE.values())
def test_errors_have_their_attributes(kind: type[KafkaError]) -> None:
    tp = TopicPartition("orders", 3)
    error = kind("details", api="Produce", broker=7, topic_partition=tp)
    assert errors.ERRORS_BY_CODE[error.code or 0] is kind
    assert error.name
    assert (error.api, error.broker, error.topic_partition) == ("Produce", 7, tp)
    for part in (error.name, str(error.code), "Produce", "7", "orders-3", "details"):
        assert part in str(error)
    assert kind.hint, "the message must say what to do"
    assert kind.hint in str(error)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
    bare = kind()
    assert (bare.api, bare.broker, bare.topic_partition) == (None, None, None)


def test_unknown_codes_get_a_generic_error() -> None:
    error = errors.error_for(12345, "details")
    assert isinstance(error, errors.ApplicationRecoverableError)
    assert error.code == 12345
    assert "12345" in str(error)
    assert errors.error_for(0) is None
    negative = errors.error_for(-1)
    assert isinstance(negative, errors.UnknownServerError)


def test_local_errors_have_no_code() -> None:
    for name in LOCAL:
        kind = getattr(errors, name)
        if name not in BROKERS and not issubclass(kind, ExceptionGroup):
            assert kind.code is None
