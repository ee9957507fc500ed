"""Tests of the hierarchy of errors: Kafka's codes, categories, messages, and copies."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import pytest

from aiokclient import errors
from aiokclient.errors import (
    ERRORS_BY_CODE,
    DeliveryErrors,
    KafkaError,
    NotLeaderOrFollowerError,
    error_for,
)
from aiokclient.errors.schema_registry import CODES
from aiokclient.types import ConsumerRecord, TimestampType, TopicPartition

ORDERS_3 = TopicPartition("orders", 3)
RECORD = ConsumerRecord(
    topic="orders",
    partition=3,
    offset=5,
    timestamp=0,
    timestamp_type=TimestampType.CREATE_TIME,
    key=None,
    value=b"v",
)
CATEGORIES = {
    errors.RefreshRetriableError: [3, 5, 6, 9, 13, 15, 16, 56, 72, 74, 80, 83, 84, 100, 103],
    errors.InvalidMetadataError: [3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103],
    errors.RetriableError: [
        *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78, 80),
        *(83, 84, 88, 89, 100, 103, 106, 122, 123, 133),
    ],
    errors.AbortableError: [120],
    errors.ApplicationRecoverableError: [22, 25, 47, 49, 82, 90],
    errors.InvalidConfigurationError: [
        *(17, 18, 21, 29, 30, 31, 33, 34, 35, 38, 40, 43, 53, 58, 65, 87),
    ],
    errors.AuthorizationError: [29, 30, 31, 53, 65],
    errors.AuthenticationError: [33, 34, 58],
    errors.InvalidOffsetError: [1],
    errors.OutOfOrderSequenceError: [45, 59],
    errors.KafkaTimeoutError: [7],
}
ALL = [kind for kind in vars(errors).values() if inspect.isclass(kind)]
CLASSES = [kind for kind in ALL if issubclass(kind, KafkaError)]


def test_every_code_of_kafka_has_a_class() -> None:
    assert set(ERRORS_BY_CODE) == {-1, *range(1, 137)}


@pytest.mark.parametrize("category", CATEGORIES, ids=lambda c: c.__name__)
def test_each_category_has_the_codes_that_kafka_puts_there(category: type[KafkaError]) -> None:
    members = [code for code, kind in ERRORS_BY_CODE.items() if issubclass(kind, category)]
    assert sorted(members) == CATEGORIES[category]


def test_what_has_no_category_derives_from_the_root_alone() -> None:
    categorised = {code for codes in CATEGORIES.values() for code in codes}
    for code in set(ERRORS_BY_CODE) - categorised:
        assert ERRORS_BY_CODE[code].__bases__ == (KafkaError,)


@pytest.mark.parametrize("kind", ERRORS_BY_CODE.values(), ids=lambda k: k.__name__)
def test_every_class_says_what_happened_and_what_to_do(kind: type[KafkaError]) -> None:
    for sentence in (kind.what, kind.hint):
        assert sentence.endswith(".")
        assert len(sentence) > 15
    assert kind.__doc__


def test_no_two_classes_give_the_same_explanation() -> None:
    texts = [(kind.what, kind.hint) for kind in ERRORS_BY_CODE.values()]
    assert len(set(texts)) == len(texts)


def test_a_code_used_twice_fails_where_it_is_defined() -> None:
    with pytest.raises(
        TypeError, match=r"NotLeaderOrFollowerError and Another have the same code, 6"
    ):

        class Another(KafkaError, code=6, name="ANOTHER"):
            pass


def test_code_zero_is_not_an_error() -> None:
    assert error_for(0) is None


def test_an_unknown_code_keeps_its_number() -> None:
    error = error_for(4711, api="Fetch")
    assert isinstance(error, errors.ApplicationRecoverableError)
    assert error.code == 4711
    assert str(error).startswith("UNKNOWN_CODE (4711) in Fetch: ")
    assert errors.UnknownCodeError.code is None


def test_the_text_of_an_error_says_what_happened_where_and_what_to_do() -> None:
    error = error_for(6, "epoch 7", api="Produce", broker=2, topic_partition=ORDERS_3)
    assert str(error) == (
        "NOT_LEADER_OR_FOLLOWER (6) in Produce to broker 2 for orders-3: "
        f"{NotLeaderOrFollowerError.what} epoch 7. {NotLeaderOrFollowerError.hint}"
    )


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (NotLeaderOrFollowerError(), "NOT_LEADER_OR_FOLLOWER (6): The broker"),
        (KafkaError("all is lost"), "all is lost."),
        (KafkaError(), ""),
        (errors.GroupNotEmptyError(resource="group billing"), "NON_EMPTY_GROUP (68) for group bil"),
        (errors.DisconnectedError("reset", api="Fetch", broker="a:9092"), "Fetch to broker a:9092"),
        (errors.ClosedError("the producer is closed"), "the producer is closed."),
        (errors.RecordError(topic_partition=ORDERS_3, offset=5), "orders-3 offset 5: A record"),
        (
            errors.CorruptBatchError(topic_partition=ORDERS_3, offset=5, last_offset=9),
            "orders-3 offsets 5 to 9: A record batch is corrupt",
        ),
        (
            errors.DecompressionLimitError(topic_partition=ORDERS_3, offset=5, last_offset=9),
            "orders-3 offsets 5 to 9: A record batch is larger than max_decompressed_batch_bytes",
        ),
        (
            errors.BootstrapError(attempts=[("a:1", "refused"), ("b:2", "unknown name")]),
            "No bootstrap server could be reached. a:1: refused; b:2: unknown name.",
        ),
        (
            errors.BootstrapError(attempts=[("a:1", "a:1 (10.0.0.1): Connection refused")]),
            "No bootstrap server could be reached. a:1 (10.0.0.1): Connection refused.",
        ),
        (
            errors.SchemaNotFoundError("No 5.", status=404, error_code=40403, url="http://r/ids/5"),
            "SCHEMA_NOT_FOUND (40403) in GET http://r/ids/5: The schema registry does not know the "
            "schema. No 5. Check the URL",
        ),
        (
            errors.SchemaRegistryError(status=409, error_code=409, url="http://r/s", method="POST"),
            "INCOMPATIBLE_SCHEMA (409) in POST http://r/s: The schema is not compatible",
        ),
        (
            errors.SchemaRegistryError(status=401, url="http://r/s"),
            "HTTP status 401 in GET http://r/s: The schema registry did not accept the cred",
        ),
        (
            errors.SchemaRegistryUnavailableError(attempts=[("http://r", "HTTP status 503")]),
            "The schema registry is not available. http://r: HTTP status 503. Check the URLs",
        ),
    ],
)
def test_the_text_of_an_error_begins_with_api_broker_and_partition(
    error: KafkaError, start: str
) -> None:
    assert str(error).startswith(start)
    assert repr(error) == f"{type(error).__name__}({str(error)!r})"


def test_broker_and_partition_of_an_error_may_be_set_later() -> None:
    error = NotLeaderOrFollowerError()
    error.broker = 4
    assert "(6) to broker 4: " in str(error)


def test_retriable_and_fatal_are_set_by_the_class() -> None:
    assert errors.NetworkError.retriable
    assert not errors.NetworkError.fatal
    assert errors.ProducerFencedError.fatal
    assert not errors.TopicAuthorizationError.retriable
    assert not errors.TopicAuthorizationError.fatal


def test_errors_derive_from_the_builtin_exceptions_that_fit() -> None:
    for kind in (errors.RequestTimedOutError, errors.ApiTimeoutError, errors.DeliveryTimeoutError):
        assert issubclass(kind, TimeoutError)
        assert issubclass(kind, errors.RetriableError)
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.UsageError, RuntimeError)
    assert issubclass(errors.DisconnectedError, errors.NetworkError)


SPECIAL = [
    errors.RecordError("m", topic_partition=ORDERS_3, offset=5, raw_value=b"v"),
    errors.CorruptBatchError(topic_partition=ORDERS_3, offset=5, last_offset=9),
    errors.DecompressionLimitError(topic_partition=ORDERS_3, offset=5, last_offset=9),
    errors.LogTruncationError(topic_partition=ORDERS_3, offset=5, diverging_offset=3),
    errors.BootstrapError(attempts=[("a:1", "refused")]),
    errors.LockLostError("m", record=RECORD, reason="disconnected", confirmed=None, broker=2),
    errors.AcknowledgeError("m", record=RECORD, api="ShareAcknowledge"),
    errors.UnknownCodeError(4711, "m", api="Fetch"),
    errors.ClusterChangedError(old_cluster_id="one", new_cluster_id="two"),
    errors.TokenRefusedError("m", endpoint="https://idp", oauth_error="invalid_client"),
    errors.SchemaRegistryError("m", status=409, error_code=409, url="http://registry/subjects/a"),
    errors.SchemaNotFoundError("m", status=404, error_code=40403, url="http://registry/ids/5"),
    errors.SchemaRegistryUnavailableError(attempts=[("http://registry", "refused")]),
]
SPECIAL_CLASSES = {type(error) for error in SPECIAL}
PLAIN = [
    kind("m", api="Produce", broker=2, topic_partition=ORDERS_3)
    for kind in CLASSES
    if kind not in SPECIAL_CLASSES
]


@pytest.mark.parametrize("error", [*SPECIAL, *PLAIN], ids=lambda e: type(e).__name__)
def test_copies_of_errors_are_equal(error: KafkaError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert twin.args == error.args


def test_delivery_errors_know_how_many_there_are() -> None:
    first = errors.DeliveryTimeoutError("m", topic_partition=ORDERS_3)
    group = DeliveryErrors("2 deliveries failed", [first, ValueError()], 250)
    assert group.count == 250
    assert pickle.loads(pickle.dumps(group)).count == 250
    matching, rest = group.split(KafkaError)
    assert isinstance(matching, DeliveryErrors)
    assert matching.exceptions == (first,)
    assert isinstance(rest, DeliveryErrors)
    assert DeliveryErrors("1", [first]).count == 1


LOSSES = {
    "expired": "The lock of the record expired before",
    "moved": "The partition has moved to another leader",
    "disconnected": "The connection to the partition's leader was lost",
    "session": "The broker has dropped the share session",
    "refused": "The broker no longer regards the record as locked",
    "fenced": "The offsets of the share group were altered",
}


@pytest.mark.parametrize("reason", LOSSES)
def test_a_lost_lock_says_why_and_what_became_of_the_settlement(reason: str) -> None:
    error = errors.LockLostError(record=RECORD, reason=reason)
    assert str(error).startswith(f"orders-3 offset 5: {LOSSES[reason]}")
    assert (error.record, error.reason, error.confirmed) == (RECORD, reason, False)
    assert isinstance(error, errors.InvalidRecordStateError)
    late = errors.LockLostError(record=RECORD, reason=reason, confirmed=True)
    assert "The broker has confirmed the settlement too late" in str(late)
    assert "delivered again" not in str(late)
    unknown = errors.LockLostError(record=RECORD, reason=reason, confirmed=None)
    assert "The broker may have applied what was settled." in str(unknown)
    assert len({str(each) for each in (error, late, unknown)}) == 3


def test_acknowledge_errors_stay_a_group_of_their_class() -> None:
    lost = errors.LockLostError(record=RECORD, reason="moved")
    refused = errors.AcknowledgeError(record=RECORD, api="ShareAcknowledge", broker=2)
    assert str(refused).startswith("ShareAcknowledge to broker 2 for orders-3 offset 5: The broker")
    group = errors.AcknowledgeErrors("2 records were not settled", [lost, refused])
    matching, rest = group.split(errors.LockLostError)
    assert isinstance(matching, errors.AcknowledgeErrors)
    assert matching.exceptions == (lost,)
    assert isinstance(rest, errors.AcknowledgeErrors)
    copied = pickle.loads(pickle.dumps(group))
    assert isinstance(copied, errors.AcknowledgeErrors)
    assert [each.record for each in copied.exceptions] == [RECORD, RECORD]


def test_every_code_of_a_registry_says_what_happened_and_what_to_do() -> None:
    texts = set()
    for code, (name, what, hint) in CODES.items():
        error = errors.SchemaRegistryError(status=code // 100, error_code=code, url="http://r")
        assert name
        assert (error.name, error.what, error.hint) == (name, what, hint)
        assert what.endswith(".")
        assert hint.endswith(".")
        texts.add((name, what))
    assert len(texts) == len(CODES)


def test_the_tree_in_the_docstring_is_complete() -> None:
    """The module's docstring has the names of all classes without a code, and all codes."""
    drawn = errors.__doc__ or ""
    local = [kind for kind in ALL if issubclass(kind, Exception) and "code" not in vars(kind)]
    assert [kind.__name__ for kind in local if kind.__name__ not in drawn] == []
    words = drawn.replace("(", " ").replace(")", " ").split()
    for category, codes in CATEGORIES.items():
        assert category.__name__ in drawn
        assert {str(code) for code in codes} <= set(words)


def test_one_file_for_each_category() -> None:
    files = {path.stem for path in Path(errors.__file__).parent.glob("*.py")}
    assert files == {
        *("__init__", "base", "retriable", "refresh_retriable", "abortable", "recoverable"),
        *("configuration", "uncategorized", "uncategorized_admin", "local"),
        "schema_registry",
    }
