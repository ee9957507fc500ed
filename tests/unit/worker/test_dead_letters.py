"""Dead letters and retry records have what the failed record had, and headers that say why."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokclient import ConsumerRecord, ProducerRecord
from aiokclient.errors import InvalidTopicError, KafkaError
from aiokclient.types import TimestampType
from aiokclient.worker import DeadLetter, DeadLetterInfo
from aiokclient.worker.dead_letters import (
    attempts_of,
    dead_letter_of,
    due_ms_of,
    message_of,
    replayed_record,
    retry_record,
    shortened_text,
    shrink_dead_letter,
    traceback_text,
)
from aiokclient.worker.retry import Failure

OLD = (("trace", b"\xff\x00"), ("empty", None), ("trace", b"2"))
LETTERS = DeadLetter("orders.dlq")


def failed(text: str = "no stock", attempts: int = 3) -> Failure:
    try:
        raise ValueError(text)
    except ValueError as error:
        return Failure(error, attempts, 1_700_000_000_123, "billing")


def record(**changes: Any) -> Any:
    fields: dict[str, Any] = {
        "topic": "orders",
        "partition": 5,
        "offset": 42,
        "timestamp": 1_600_000_000_000,
        "timestamp_type": TimestampType.CREATE_TIME,
        "key": b"\xffkey",
        "value": b"\x00value",
        "headers": OLD,
    }
    return ConsumerRecord(**{**fields, **changes})


def read_again(sent: ProducerRecord, offset: int = 7, partition: int = 0) -> Any:
    """Return a record as a consumer reads it later."""
    return record(
        topic=sent.topic,
        partition=partition,
        offset=offset,
        timestamp=1_700_000_000_999,
        key=sent.key,
        value=sent.value,
        headers=sent.headers,
    )


def test_dead_letter_has_the_bytes_of_the_record_and_says_why_it_failed() -> None:
    sent = dead_letter_of(record(), failed(), LETTERS)
    assert sent[:5] == ("orders.dlq", b"\x00value", b"\xffkey", 5, 1_600_000_000_000)
    assert tuple(sent.headers[:3]) == OLD
    added = dict(sent.headers[3:])
    shown = added.pop("aiokclient.error.traceback")
    assert shown is not None
    assert shown.endswith(b"ValueError: no stock\n")
    assert b"in failed" in shown
    assert b"^" not in shown  # Carets take room, and three quarters of the time.
    assert added == {
        "aiokclient.origin.topic": b"orders",
        "aiokclient.origin.partition": b"5",
        "aiokclient.origin.offset": b"42",
        "aiokclient.origin.timestamp": b"1600000000000",
        "aiokclient.origin.group": b"billing",
        "aiokclient.error.type": b"ValueError",
        "aiokclient.error.message": b"no stock",
        "aiokclient.attempts": b"3",
        "aiokclient.failed_at": b"1700000000123",
    }


def test_info_has_what_the_headers_say() -> None:
    info = DeadLetterInfo.of(read_again(dead_letter_of(record(), failed(), LETTERS)))
    assert info[:7] == ("orders", 5, 42, 1_600_000_000_000, "billing", "ValueError", "no stock")
    assert "ValueError: no stock" in (info.traceback or "")
    assert info[8:] == (3, 1_700_000_000_123, 0, ())
    assert DeadLetterInfo.of(record()) == (*[None] * 8, 0, None, 0, ())


def test_origin_stays_over_retries_replays_and_later_dead_letters() -> None:
    first = retry_record(record(), failed(attempts=1), "orders.retry", 1_700_000_005_000)
    assert first.partition == 5
    again = read_again(first, partition=5)
    assert (attempts_of(again), due_ms_of(again)) == (1, 1_700_000_005_000)
    dead = read_again(dead_letter_of(again, failed(attempts=2), LETTERS), partition=5)
    assert (attempts_of(dead), due_ms_of(dead)) == (2, None)
    back = read_again(replayed_record(dead, "orders", 5), offset=99, partition=5)
    info = DeadLetterInfo.of(back)
    assert info == ("orders", 5, 42, 1_600_000_000_000, "billing", *[None] * 3, 0, None, 1, ())
    names = [name for name, _ in back.headers]
    assert len(set(names)) == len(names) - 1, "only `trace` stands twice"
    second = DeadLetterInfo.of(read_again(dead_letter_of(back, failed("again", 1), LETTERS)))
    assert second[:5] == info[:5]
    assert (second.error_message, second.attempts, second.replays) == ("again", 1, 1)


def test_timestamp_of_a_dead_letter_is_that_of_the_origin() -> None:
    # A topic for retries may have message.timestamp.type=LogAppendTime.
    again = read_again(retry_record(record(), failed(), "orders.retry", 1))
    assert dead_letter_of(again, failed(), LETTERS).timestamp == 1_600_000_000_000
    without = record(timestamp=-1)
    sent = dead_letter_of(without, failed(), LETTERS)
    assert sent.timestamp is None
    assert "aiokclient.origin.timestamp" not in dict(sent.headers)


def test_partition_is_the_one_of_the_origin_or_the_choice_of_the_partitioner() -> None:
    assert dead_letter_of(record(), failed(), LETTERS).partition == 5
    assert dead_letter_of(record(), failed(), LETTERS, 6).partition == 5
    assert dead_letter_of(record(), failed(), LETTERS, 3).partition == 2
    assert dead_letter_of(record(), failed(), DeadLetter("d", None), 3).partition is None
    assert retry_record(record(), failed(), "r", 1, 2).partition == 1


def test_dead_letter_for_spring_has_its_binary_headers() -> None:
    failure = failed()
    failure.error.__cause__ = KeyError("tea")
    sent = dead_letter_of(record(), failure, DeadLetter("d", headers="spring"))
    added = dict(sent.headers)
    assert added["kafka_dlt-original-topic"] == b"orders"
    assert added["kafka_dlt-original-partition"] == struct.pack(">i", 5)
    assert added["kafka_dlt-original-offset"] == struct.pack(">q", 42)
    assert added["kafka_dlt-original-timestamp"] == struct.pack(">q", 1_600_000_000_000)
    assert added["kafka_dlt-original-timestamp-type"] == b"CreateTime"
    assert added["kafka_dlt-original-consumer-group"] == b"billing"
    assert added["kafka_dlt-exception-fqcn"] == b"ValueError"
    assert added["kafka_dlt-exception-cause-fqcn"] == b"KeyError"
    assert added["kafka_dlt-exception-message"] == b"no stock"
    assert added["kafka_dlt-exception-stacktrace"] == added["aiokclient.error.traceback"]
    assert added["retry_topic-attempts"] == struct.pack(">i", 3)
    assert added["retry_topic-original-timestamp"] == (1_600_000_000_000).to_bytes(6, "big")
    again = dead_letter_of(read_again(sent), failed("later"), DeadLetter("d", headers="spring"))
    names = [name for name, _ in again.headers if name.startswith("kafka_dlt-")]
    assert len(names) == len(set(names))


def test_origin_is_read_from_headers_of_spring() -> None:
    headers = [
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", struct.pack(">i", 3)),
        ("kafka_dlt-original-offset", struct.pack(">q", 17)),
        ("kafka_dlt-original-timestamp", struct.pack(">q", 5)),
        ("kafka_dlt-original-consumer-group", b"java"),
        ("kafka_dlt-exception-message", b"boom"),
    ]
    letter = record(topic="orders-dlt", headers=headers)
    assert DeadLetterInfo.of(letter)[:5] == ("orders", 3, 17, 5, "java")
    back = dict(replayed_record(letter, "orders", 3).headers)
    assert "kafka_dlt-exception-message" not in back
    assert "kafka_dlt-original-topic" in back


@pytest.mark.parametrize("value", [None, b"", b"x", b"-1", b"9" * 30, b"1.5", b"\xff"])
def test_header_that_is_no_number_counts_as_missing(value: bytes | None) -> None:
    names = ("attempts", "due", "failed_at", "replays", "origin.partition", "origin.offset")
    headers = [("aiokclient.origin.topic", b"x"), *((f"aiokclient.{n}", value) for n in names)]
    strange = record(headers=headers)
    assert (attempts_of(strange), due_ms_of(strange)) == (0, None)
    assert DeadLetterInfo.of(strange).origin_topic is None
    assert DeadLetterInfo.of(strange).replays == 0
    sent = dead_letter_of(strange, failed(), DeadLetter("d", headers="spring"))
    assert dict(sent.headers)["aiokclient.origin.topic"] == b"orders"


def test_too_large_dead_letter_loses_its_traceback_first_and_then_its_value() -> None:
    sent = dead_letter_of(record(), failed(), DeadLetter("d", headers="spring"))
    smaller = shrink_dead_letter(sent)
    assert smaller is not None
    assert smaller.value == b"\x00value"
    assert not [name for name, _ in smaller.headers if "trace" in name and name != "trace"]
    assert DeadLetterInfo.of(read_again(smaller)).dropped == ("traceback",)
    smallest = shrink_dead_letter(smaller)
    assert smallest is not None
    assert (smallest.value, smallest.key) == (None, b"\xffkey")
    assert DeadLetterInfo.of(read_again(smallest)).dropped == ("traceback", "value")
    assert shrink_dead_letter(smallest) is None


def test_too_large_dead_letter_without_a_traceback_loses_its_value() -> None:
    sent = dead_letter_of(record(), failed(), DeadLetter("d", traceback_bytes=0))
    smaller = shrink_dead_letter(sent)
    assert smaller is not None
    assert DeadLetterInfo.of(read_again(smaller)).dropped == ("value",)


def fail_deeply(depth: int) -> None:
    if depth:
        fail_deeply(depth - 1)
    raise_from_innermost()


def raise_from_innermost() -> None:
    raise RuntimeError("y" * 5000)


@given(st.integers(0, 6000))
def test_traceback_has_the_newest_frames_in_at_most_the_bytes_that_it_may_have(limit: int) -> None:
    try:
        fail_deeply(30)
    except RuntimeError as error:
        shown, complete = traceback_text(error, limit), traceback_text(error, 1_000_000)
    assert len(shown) <= limit
    if limit >= len(complete):
        assert shown == complete
    elif limit >= 1500:
        assert b"raise_from_innermost" in shown
        assert b"earlier lines are left out" in shown


@given(st.text(), st.integers(0, 20))
def test_shortened_text_is_the_start_of_the_text(text: str, limit: int) -> None:
    shown = shortened_text(text, limit).decode()
    assert len(shown.encode()) <= limit
    assert text.startswith((shown, shown.removesuffix("\u2026")))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_error_without_a_text_has_a_dead_letter_nevertheless() -> None:
    assert message_of(Unprintable()) == "(str() of this error raises KeyError)"
    sent = dead_letter_of(record(), Failure(Unprintable(), 1, 1, None), LETTERS)
    info = DeadLetterInfo.of(read_again(sent))
    assert info.error_type == f"{__name__}.Unprintable"
    assert info.origin_group is None
    assert "Unprintable" in (info.traceback or "")


def test_text_with_half_a_surrogate_pair_is_escaped() -> None:
    sent = dead_letter_of(record(), failed("\ud800"), LETTERS)
    assert dict(sent.headers)["aiokclient.error.message"] == b"\\ud800"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"topic": "no topic"}, InvalidTopicError, "cannot be a topic"),
        ({"topic": None}, TypeError, "cannot be a topic"),
        ({"topic": "d", "partition": "other"}, ValueError, "partition='other' is neither"),
        ({"topic": "d", "traceback_bytes": "4"}, TypeError, "is not an int"),
        ({"topic": "d", "traceback_bytes": -1}, ValueError, "0 leaves tracebacks out"),
        ({"topic": "d", "headers": "java"}, ValueError, "headers='java' is neither"),
        ({"topic": "d", "create": 1}, TypeError, "create=1 is not a bool"),
    ],
)
def test_wrong_argument_of_a_dead_letter_is_refused(
    arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as raised:
        DeadLetter(**arguments)
    assert isinstance(raised.value, KafkaError)
